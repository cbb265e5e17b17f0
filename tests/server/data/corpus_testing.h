#ifndef BALLAST_TESTS_SERVER_DATA_CORPUS_TESTING_H_
#define BALLAST_TESTS_SERVER_DATA_CORPUS_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/data/index/index_options.h"
#include "server/sample/sample_source.h"
#include "server/sample/source_index.h"
#include "tests/fakes/read_file.h"

namespace ballast {

// An empty folder of the running test.
std::string TestFolder();

// Writes a whole file; the test fails if that is impossible.
void WriteFile(const std::string& path, absl::string_view bytes);

// A tar header block made by hand. `size` is the text of the size field; the
// checksum is right.
std::string TarBlock(absl::string_view name, absl::string_view size,
                     char type = '0', absl::string_view prefix = "");

// A header and its member's bytes, padded.
std::string TarEntry(absl::string_view name, absl::string_view bytes,
                     char type = '0');

// The two blocks of zeros at the end.
std::string TarEnd();

// "LENGTH KEY=VALUE\n".
std::string PaxRecord(absl::string_view key, absl::string_view value);

// Writes name -> bytes with TarWriter.
void WriteTar(const std::string& path,
              const std::vector<std::pair<std::string, std::string>>& members);

// A stand-in for image files: `before` bytes, then the size.
std::string FakeImage(uint32_t width, uint32_t height, size_t before = 0);

// Reads FakeImages. OUT_OF_RANGE if the bytes end before the size,
// INVALID_ARGUMENT ("no image") if they are something else.
absl::StatusOr<ImageSize> ReadFakeImage(absl::string_view bytes);

// Measures a text: tokens = its bytes, label tokens = 1000 * images. A text
// that contains "unmeasurable" is an error with that message; one that contains
// "skip" is skipped.
absl::StatusOr<TextLengths> MeasureBytes(const RawSample& sample,
                                         absl::Span<const ImageSize> images);

// A key, always the same one.
IndexKey FakeKey();

// Options with all of the above; MeasureBytes' lengths hold under any limits.
IndexOptions FakeOptions();

// A source whose index is `index/NAME.index` in the configuration's folder.
v1::Source MakeSource(v1::Source::Format format, absl::string_view path);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_DATA_CORPUS_TESTING_H_
