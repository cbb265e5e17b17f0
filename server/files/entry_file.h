#ifndef BALLAST_SERVER_FILES_ENTRY_FILE_H_
#define BALLAST_SERVER_FILES_ENTRY_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/instruments.h"
#include "common/mutex.h"
#include "server/files/file.h"
#include "server/files/object_store.h"

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

// Counts of what a process read from its stores; see GetStatusResponse.Storage.
struct StorageCounters {
  Counter requests;
  Counter fetched_bytes;
  Counter memory_hits;
  Counter cache_hits;
  DurationHistogram stalls;
  Counter errors;
  Counter cache_damaged;
  Counter cache_evicted;
  Counter cache_failures;
};

// Decides what a cache keeps, given what the schedule needs next. Pure
// functions.

// The position of an entry that is not used any more.
inline constexpr uint64_t kNeverUsed = std::numeric_limits<uint64_t>::max();

// For each of `owners`, the first position from `from` to `end` - 1 at which it
// is used; kNeverUsed if it is not. `add_owners` appends the owners that a
// position uses. Stops as soon as all are found.
std::vector<uint64_t> NextUses(
    absl::Span<const uint64_t> owners, uint64_t from, uint64_t end,
    absl::FunctionRef<void(uint64_t position, std::vector<uint64_t>* owners)>
        add_owners);

// An entry of the cache.
struct CacheEntry {
  uint64_t bytes = 0;
  uint64_t next_use = kNeverUsed;  // position
};

// The entries to remove so that `wanted` bytes, needed at `needed_at`, fit.
// Entries that are needed last go first, among equals the larger, and never an
// entry that is needed before `needed_at`. Frees up to `spare` bytes more, so
// that the next call comes later. Empty if this cannot free `wanted` bytes.
// Numbers of entries, in the order of removal.
std::vector<size_t> ChooseVictims(absl::Span<const CacheEntry> entries,
                                  uint64_t wanted, uint64_t spare,
                                  uint64_t needed_at);

// Entries of the cache that were seen, by a hash of each, so that the next
// epoch does not look on the disk for them. At most `capacity`; one more makes
// it forget all. Thread-safe.
//
// `removals` counts the entries that all processes of the node have removed
// until the call, or until the entry was seen. Once it has grown, all are
// forgotten.
class KnownEntries {
 public:
  explicit KnownEntries(size_t capacity) : capacity_(capacity) {}

  bool Has(uint64_t entry, uint64_t removals);
  // Adds an entry, unless something was removed since it was seen.
  void Add(uint64_t entry, uint64_t removals);
  void Drop(uint64_t entry);

 private:
  void Update(uint64_t removals) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t capacity_;
  Mutex mutex_;
  uint64_t removals_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_set<uint64_t> entries_ ABSL_GUARDED_BY(mutex_);
};

// Entries of the cache that stay open, so that the next module's read opens
// nothing: at most `capacity` (at least 1) of at most kMaxBytes, the last
// used. Entries that readers hold are not counted. Thread-safe.
//
// `removals` counts the entries that all processes of the node have removed
// until the call, or until the file was opened. Once it has grown, all are
// closed: a removed one would keep its place on the disk.
class EntryPool {
 public:
  // Opening a larger entry costs little compared with reading it, and removed
  // files that are still open must not take much of the disk.
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 20;

  explicit EntryPool(size_t capacity) : capacity_(capacity) {}

  // Null if the entry is not open here.
  std::shared_ptr<const EntryFile> Find(const SpanKey& key, uint64_t removals);
  // Keeps an entry, unless it is too large or something was removed since it
  // was opened.
  void Put(const SpanKey& key, std::shared_ptr<const EntryFile> entry,
           uint64_t removals);
  void Drop(const SpanKey& key);
  // Closes all if something was removed.
  void Update(uint64_t removals);
  // Closes all entries: the process has run out of descriptors.
  void Clear();

  size_t size() const;

 private:
  using Open = std::pair<SpanKey, std::shared_ptr<const EntryFile>>;
  // Returns entries, to be closed after the lock is released.
  std::list<Open> UpdateLocked(uint64_t removals)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t capacity_;
  mutable Mutex mutex_;
  uint64_t removals_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Open> open_ ABSL_GUARDED_BY(mutex_);  // last used first
  absl::flat_hash_map<SpanKey, std::list<Open>::iterator> places_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_ENTRY_FILE_H_
