#ifndef BALLAST_SERVER_STORAGE_ENTRY_FILE_H_
#define BALLAST_SERVER_STORAGE_ENTRY_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/file.h"
#include "server/storage/span.h"

namespace ballast {

// The open file of one entry of the cache, which readers share. In the file:
//
//   32 bytes        magic with the version of this format, key, size
//   8 for each      checksums of the blocks
//   `size`          the bytes, in blocks of kBlock, the last may be shorter
//
// A checksum also depends on key and number, so that a block from another place
// never matches. Immutable; thread-safe.
class EntryFile {
 public:
  // Small enough that a few bytes cost little, such as the marks between the
  // pieces of an image in Parquet.
  static constexpr uint64_t kBlock = uint64_t{4} << 10;

  // The size of the file of an entry of `size` bytes.
  static uint64_t FileBytes(uint64_t size);
  // The whole file before `bytes`.
  static std::string Head(const SpanKey& key, absl::string_view bytes);

  // Takes the file of the entry of this key and size. Errors: as
  // EntryReader::ReadAt.
  static absl::StatusOr<std::shared_ptr<const EntryFile>> Open(
      File file, const SpanKey& key, uint64_t size, ReadFrom from);

  // Size of the entry.
  uint64_t size() const { return size_; }

 private:
  friend class EntryReader;
  EntryFile(File file, const SpanKey& key, uint64_t size)
      : file_(std::move(file)), key_(key), size_(size) {}

  // Reads a part of the file.
  absl::Status Read(uint64_t offset, uint64_t size, char* out,
                    ReadFrom from) const;
  uint64_t BlockBytes(uint64_t first, uint64_t count) const;

  const File file_;
  const SpanKey key_;
  const uint64_t size_;
  // The first checksums, as the file has them.
  std::string checksums_;
};

// Reads an entry. A block is compared with its checksum each time that it is
// read from the file. Thread-compatible.
class EntryReader {
 public:
  EntryReader(std::shared_ptr<const EntryFile> file, ReadFrom from)
      : file_(std::move(file)), from_(from) {}

  // Reads bytes of the entry: whole blocks straight to `out`, which has other
  // bytes than the entry after a failure. Errors: DATA_LOSS (a block is
  // damaged, or the disk fails); ABORTED (kMemory, and not all is in memory).
  absl::Status ReadAt(uint64_t offset, uint64_t size, char* out);
  // As File::ReadSoon.
  void ReadSoon(uint64_t offset, uint64_t size) const;

 private:
  // A block that was read in part.
  struct KeptBlock {
    std::unique_ptr<char[]> bytes;
    std::optional<uint64_t> number;
  };
  // Enough for the headers of a tar's image and text, and for a text across
  // blocks: the image then needs no block to be read again.
  static constexpr size_t kKept = 4;

  // Null if the block is not kept.
  const char* FindKept(uint64_t number) const;
  // Reads a block to be kept in place of the oldest.
  absl::StatusOr<const char*> Keep(uint64_t number);
  // Reads `count` blocks from `first` on, and compares them.
  absl::Status ReadBlocks(uint64_t first, uint64_t count, char* out);
  // The checksum of a block, as the file has it.
  absl::StatusOr<uint64_t> GetChecksum(uint64_t block);

  const std::shared_ptr<const EntryFile> file_;
  const ReadFrom from_;
  // Checksums after the file's first ones, from block first_checksum_ on.
  std::string checksums_;
  uint64_t first_checksum_ = 0;
  std::array<KeptBlock, kKept> kept_;
  size_t oldest_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_ENTRY_FILE_H_
