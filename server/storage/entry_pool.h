#ifndef BALLAST_SERVER_STORAGE_ENTRY_POOL_H_
#define BALLAST_SERVER_STORAGE_ENTRY_POOL_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/mutex.h"
#include "server/storage/entry_file.h"
#include "server/storage/span_memory.h"

namespace ballast {

// Entries of the cache that stay open, so that the next module's read opens
// nothing: at most `capacity` (at least 1) of at most kMostBytes, the last
// used. What readers hold comes on top. Thread-safe.
//
// `removals` counts the entries that all processes of the node have removed
// until the call, or until the file was opened. Once it has grown, all are
// closed: a removed one would keep its place on the disk.
class EntryPool {
 public:
  // Opening a larger one costs little beside reading it, and removed files that
  // are still open shall not take much of the disk.
  static constexpr uint64_t kMostBytes = uint64_t{1} << 20;

  explicit EntryPool(size_t capacity) : capacity_(capacity) {}

  // Null if it is not here.
  std::shared_ptr<const EntryFile> Find(const SpanKey& key, uint64_t removals);
  // Keeps an entry, unless it is too large or something was removed since it
  // was opened.
  void Put(const SpanKey& key, std::shared_ptr<const EntryFile> entry,
           uint64_t removals);
  void Drop(const SpanKey& key);
  // Closes all if something was removed.
  void Update(uint64_t removals);
  // Closes all, for a process that has run out of descriptors.
  void Clear();

  size_t size() const;

 private:
  using Open = std::pair<SpanKey, std::shared_ptr<const EntryFile>>;
  // Returns what is to be closed after the lock.
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

#endif  // BALLAST_SERVER_STORAGE_ENTRY_POOL_H_
