#ifndef BALLAST_SERVER_FILES_DISK_CACHE_H_
#define BALLAST_SERVER_FILES_DISK_CACHE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/files/entry_file.h"
#include "server/files/object_store.h"

namespace ballast {

class EntryPool;
class KnownEntries;

// Ranges of objects on local disk, shared by the processes of a node that open
// the same folder, and bounded in bytes over all of them. One file an entry,
// named by key, owner, size and the version of its format; a rename makes it
// appear as a whole, and checksums are compared at every read, so that nothing
// that a crash or a failing disk has damaged is served. Thread-safe.
//
//   DIR/lock      held shared by every process; alone while counting anew
//   DIR/evict     held by the process that makes room
//   DIR/usage     bytes of all entries, mapped by every process
//   DIR/removals  how many entries have been removed, likewise
//   DIR/00…ff     the entries
//
// Keeps the small entries that were read last open (entry_file.h) and knows
// which it has seen (entry_file.h), until a process of the node removes one.
class DiskCache {
 public:
  // Opens or makes the cache in `dir`; `size` bounds its bytes. Takes over
  // existing entries, even if they exceed `size`, until MakeRoom. Errors:
  // FAILED_PRECONDITION (`dir` holds something else), and of the disk, naming
  // storage.cache.dir. `counters` is not owned.
  static absl::StatusOr<std::shared_ptr<DiskCache>> Open(
      const std::string& dir, uint64_t size, StorageCounters* counters);
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  // The entry, opened for reading, or null. One whose header is damaged is null
  // and, unless `from` is kMemory, removed and counted. kMemory: null if the
  // system would have to read the disk to open it. An entry that is removed
  // while it is open keeps its bytes.
  std::unique_ptr<EntryReader> Find(const SpanKey& key, uint64_t owner,
                                    uint64_t size, ReadFrom from) const;
  // Removes an entry of which a read has failed, counts it and logs it.
  void RemoveDamaged(const SpanKey& key, uint64_t owner, uint64_t size) const;
  // Whether there is such an entry; no checksum is compared. Returns true for
  // an entry that was seen before and then removed by hand, until Find misses
  // it.
  bool Has(const SpanKey& key, uint64_t owner, uint64_t size) const;

  // Adds an entry. False if there is no room for it, or the disk fails (logged
  // once): the cache is then as before.
  bool Store(const SpanKey& key, uint64_t owner, absl::string_view bytes) const;

  // Whether an entry of `bytes` fits now.
  bool HasRoom(uint64_t bytes) const;
  // Removes entries by ChooseVictims so that one of `bytes`, needed at
  // `needed_at`, fits. `next_uses` returns a position for each owner
  // (NextUses). False if it does not fit then, or another process makes room
  // just now.
  using NextUsesOf =
      std::function<std::vector<uint64_t>(absl::Span<const uint64_t> owners)>;
  bool MakeRoom(uint64_t bytes, uint64_t needed_at,
                const NextUsesOf& next_uses) const;

  // Limit of entries that are open though nobody reads them: also at most a
  // quarter of the descriptors that the process may have.
  static constexpr size_t kMaxOpen = 256;
  size_t open_entries() const;

  // Bytes of all processes' entries; the bound.
  uint64_t bytes() const;
  uint64_t size() const { return size_; }

 private:
  struct Usage;
  struct Removals;
  struct Listed {
    std::string path;
    uint64_t owner = 0;
    uint64_t bytes = 0;
  };
  DiskCache(std::string dir, uint64_t size, StorageCounters* counters);

  absl::Status Prepare();
  // All entries. `clean`: removes unfinished files and entries of other
  // formats.
  std::vector<Listed> List(bool clean) const;
  std::string GetPath(const SpanKey& key, uint64_t owner, uint64_t size) const;
  // The entry's name below dir_.
  static std::string GetName(const SpanKey& key, uint64_t owner, uint64_t size);
  // Opens the entry's file; as Find.
  std::shared_ptr<const EntryFile> OpenEntry(const SpanKey& key, uint64_t owner,
                                             uint64_t size,
                                             ReadFrom from) const;
  // Removals by all processes of the node.
  uint64_t CountRemovals() const;
  // Returns whether the file existed.
  bool Remove(const std::string& path, uint64_t bytes) const;
  bool Reserve(uint64_t bytes) const;
  void WarnOnce(absl::string_view what) const;

  const std::string dir_;
  const uint64_t size_;
  StorageCounters* const counters_;
  int lock_ = -1;
  int evict_ = -1;
  int folder_ = -1;  // dir_, if opening files there needs no other machine
  Usage* usage_ = nullptr;
  Removals* removals_ = nullptr;
  const std::unique_ptr<EntryPool> pool_;
  const std::unique_ptr<KnownEntries> known_;
  mutable std::atomic<uint64_t> next_temporary_{0};
  mutable std::atomic<bool> warned_{false};
};

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_DISK_CACHE_H_
