#ifndef BALLAST_SERVER_CORPUS_JSONL_LINE_READER_H_
#define BALLAST_SERVER_CORPUS_JSONL_LINE_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/file.h"

namespace ballast {

struct Line {
  uint64_t number = 0;  // from 1
  uint64_t offset = 0;
  // Bytes, without the line break ("\n" or "\r\n").
  uint64_t length = 0;
  // Empty if `length` is over the reader's bound. Valid until the next call.
  absl::string_view text;
};

// Reads a file line by line, 1 MiB at a time. The last line may lack its break.
// Thread-compatible; blocks on the disk.
class LineReader {
 public:
  // `file` must outlive the reader. The text of lines longer than `max_length`
  // is dropped.
  LineReader(const File* file, uint64_t max_length);

  // The next line, or nullopt at the end. Errors: as File::ReadAt.
  absl::StatusOr<std::optional<Line>> Next();

 private:
  const File* file_;
  const uint64_t max_length_;
  uint64_t number_ = 0;
  uint64_t position_ = 0;  // in the file, after the bytes of `buffer_`
  std::string buffer_;
  size_t used_ = 0;  // bytes of `buffer_` that have been returned
  std::string line_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_JSONL_LINE_READER_H_
