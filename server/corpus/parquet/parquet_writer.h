#ifndef BALLAST_SERVER_CORPUS_PARQUET_PARQUET_WRITER_H_
#define BALLAST_SERVER_CORPUS_PARQUET_PARQUET_WRITER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

// Writes a Parquet file of conversations as Hugging Face's datasets do: columns
// `images`, a list of {bytes, path}, and `conversations`, a list of {from,
// value}; pages are compressed with Snappy. Equal rows and libraries give equal
// bytes. Thread-compatible; blocks on the disk.
class ParquetWriter {
 public:
  struct Image {
    std::string path;  // a name to show
    absl::string_view bytes;
  };
  struct Row {
    std::vector<Image> images;
    std::vector<std::pair<std::string, std::string>> turns;  // from, value
  };

  // Creates `path`; pages have checksums if `checksums`. Errors: UNIMPLEMENTED
  // (this build has no Parquet); UNAVAILABLE (the file cannot be written).
  static absl::StatusOr<std::unique_ptr<ParquetWriter>> Create(
      const std::string& path, bool checksums = false);

  virtual ~ParquetWriter() = default;

  // Writes `rows` as one row group. Errors: UNAVAILABLE.
  virtual absl::Status WriteGroup(absl::Span<const Row> rows) = 0;
  // Writes the footer; nothing follows. Errors: UNAVAILABLE.
  virtual absl::Status Finish() = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_PARQUET_WRITER_H_
