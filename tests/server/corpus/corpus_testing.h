#ifndef BALLAST_TESTS_SERVER_CORPUS_CORPUS_TESTING_H_
#define BALLAST_TESTS_SERVER_CORPUS_CORPUS_TESTING_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace ballast {

// An empty folder of the running test.
std::string TestFolder();

// The file's bytes; the test fails where it cannot be read or written.
std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, absl::string_view bytes);

// A tar header block by hand. `size` is the text of the size field; the
// checksum is right.
std::string TarBlock(absl::string_view name, absl::string_view size,
                     char type = '0', absl::string_view prefix = "");

// A header and its member's bytes, padded.
std::string TarEntry(absl::string_view name, absl::string_view bytes,
                     char type = '0');

// The two blocks of zeros.
std::string TarEnd();

// "LENGTH KEY=VALUE\n".
std::string PaxRecord(absl::string_view key, absl::string_view value);

// Writes name -> bytes with TarWriter.
void WriteTar(const std::string& path,
              const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_CORPUS_CORPUS_TESTING_H_
