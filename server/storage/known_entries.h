#ifndef BALLAST_SERVER_STORAGE_KNOWN_ENTRIES_H_
#define BALLAST_SERVER_STORAGE_KNOWN_ENTRIES_H_

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "common/mutex.h"

namespace ballast {

// Entries of the cache that were seen, by a hash of each, so that the next
// epoch asks no disk for them. At most `capacity`; a further one makes all be
// forgotten. Thread-safe.
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

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_KNOWN_ENTRIES_H_
