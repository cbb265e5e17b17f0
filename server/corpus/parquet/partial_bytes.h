#ifndef BALLAST_SERVER_CORPUS_PARQUET_PARTIAL_BYTES_H_
#define BALLAST_SERVER_CORPUS_PARQUET_PARTIAL_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/corpus/file.h"
#include "server/storage/object_store.h"

namespace ballast {

// A range of a file of which only parts have been read: whoever reads it once
// more gets those parts, and zeros for the rest. Takes the memory of the parts.
// Thread-compatible.
//
//   PartialBytes partial(&file, chunk);
//   partial.Read(offset, 4, length);                  // from the file
//   partial.CopyTo(chunk.offset, chunk.size, bytes);  // four bytes, and zeros
class PartialBytes {
 public:
  // `file` is not owned.
  PartialBytes(const File* file, ByteRange range)
      : file_(file), range_(range) {}

  const ByteRange& range() const { return range_; }
  // What all parts take.
  uint64_t bytes() const { return bytes_; }

  // Reads from the file and keeps what it read. Reads ascend: each begins
  // after all gaps that earlier ones have left. Errors: INTERNAL (not so),
  // DATA_LOSS (not within the range); as File::ReadAt.
  absl::Status Read(uint64_t offset, uint64_t size, char* out);
  // Reads it only to keep it.
  absl::Status Keep(ByteRange part);

  // Copies `size` bytes at `offset`, within the range.
  void CopyTo(uint64_t offset, uint64_t size, char* out) const;

 private:
  struct Part {
    uint64_t offset;
    std::string bytes;
    uint64_t end() const { return offset + bytes.size(); }
  };
  absl::Status Check(uint64_t offset, uint64_t size) const;

  const File* const file_;
  const ByteRange range_;
  // Ascending, apart from each other.
  std::vector<Part> parts_;
  uint64_t bytes_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_PARTIAL_BYTES_H_
