#ifndef BALLAST_COMMON_LOAD_ONCE_CACHE_H_
#define BALLAST_COMMON_LOAD_ONCE_CACHE_H_

#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"

namespace ballast {

// Values by key, of which each is loaded once for all who ask for it. Holds
// `capacity` bytes, or one value if that alone takes more, and forgets the
// least recently used first. Values that a caller holds, or that are being
// loaded, come on top. `kBytes` is the size of a value. Thread-safe.
template <typename Key, typename Value, uint64_t (Value::*kBytes)() const>
class LoadOnceCache {
 public:
  using Ptr = std::shared_ptr<const Value>;
  using Load = std::function<absl::StatusOr<Ptr>()>;

  explicit LoadOnceCache(uint64_t capacity) : capacity_(capacity) {}

  void SetCapacity(uint64_t capacity) {
    std::vector<Ptr> forgotten;  // freed after the lock
    MutexLock lock(&mutex_);
    capacity_ = capacity;
    forgotten = Evict();
  }

  // Returns the cached value, or null. Does not block.
  Ptr Find(const Key& key) {
    MutexLock lock(&mutex_);
    return FindLocked(key);
  }

  // Returns the cached value, or loads it: one caller runs `load` and the
  // others wait for it. Each caller that waited for a failed load loads anew.
  // Errors: as `load`.
  absl::StatusOr<Ptr> Get(const Key& key, const Load& load) {
    {
      MutexLock lock(&mutex_);
      while (true) {
        if (Ptr value = FindLocked(key)) return value;
        if (entries_.try_emplace(key).second) break;
        // Another caller loads it; the timeouts of a read bound that.
        loaded_.Wait(&mutex_);
      }
      ++loads_;
    }
    absl::StatusOr<Ptr> value = load();
    std::vector<Ptr> forgotten;  // freed after the lock
    MutexLock lock(&mutex_);
    const auto entry = entries_.find(key);
    if (!value.ok()) {
      entries_.erase(entry);
    } else {
      forgotten = Fill(key, entry->second, *value);
    }
    loaded_.NotifyAll();
    return value;
  }

  // Keeps a value that was read elsewhere, unless it is cached or being loaded.
  void Put(const Key& key, Ptr value) {
    std::vector<Ptr> forgotten;  // freed after the lock
    MutexLock lock(&mutex_);
    const auto [entry, is_new] = entries_.try_emplace(key);
    if (is_new) forgotten = Fill(key, entry->second, std::move(value));
  }

  // Forgets the value, so that the next Get loads it.
  void Drop(const Key& key) {
    Ptr forgotten;  // freed after the lock
    MutexLock lock(&mutex_);
    if (FindLocked(key) != nullptr) forgotten = Forget(used_.begin());
  }

  // Forgets all values with such keys.
  void DropIf(const std::function<bool(const Key&)>& is_one) {
    std::vector<Ptr> forgotten;  // freed after the lock
    MutexLock lock(&mutex_);
    for (auto key = used_.begin(); key != used_.end();) {
      if (is_one(*key)) {
        forgotten.push_back(Forget(key++));
      } else {
        ++key;
      }
    }
  }

  uint64_t capacity() const {
    MutexLock lock(&mutex_);
    return capacity_;
  }
  // Bytes held, and the loads so far.
  uint64_t bytes() const {
    MutexLock lock(&mutex_);
    return bytes_;
  }
  uint64_t loads() const {
    MutexLock lock(&mutex_);
    return loads_;
  }

 private:
  using Used = std::list<Key>;
  struct Entry {
    Ptr value;  // null while it is being loaded
    typename Used::iterator used;
  };

  Ptr FindLocked(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.value == nullptr) {
      return nullptr;
    }
    used_.splice(used_.begin(), used_, found->second.used);
    return found->second.value;
  }

  // Fills an entry. Returns the values that it forgets: freeing them takes
  // time.
  std::vector<Ptr> Fill(const Key& key, Entry& entry, Ptr value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bytes_ += ((*value).*kBytes)();
    used_.push_front(key);
    entry = {std::move(value), used_.begin()};
    return Evict();
  }

  std::vector<Ptr> Evict() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<Ptr> forgotten;
    while (bytes_ > capacity_ && used_.size() > 1) {
      forgotten.push_back(Forget(std::prev(used_.end())));
    }
    return forgotten;
  }

  Ptr Forget(typename Used::iterator key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto entry = entries_.find(*key);
    Ptr value = std::move(entry->second.value);
    bytes_ -= ((*value).*kBytes)();
    entries_.erase(entry);
    used_.erase(key);
    return value;
  }

  mutable Mutex mutex_;
  CondVar loaded_;
  uint64_t capacity_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t loads_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<Key, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  Used used_ ABSL_GUARDED_BY(mutex_);  // loaded ones, latest first
};

}  // namespace ballast

#endif  // BALLAST_COMMON_LOAD_ONCE_CACHE_H_
