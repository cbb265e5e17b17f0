#include "server/storage/entry_pool.h"

#include <iterator>

namespace ballast {

std::list<EntryPool::Open> EntryPool::UpdateLocked(uint64_t removals) {
  std::list<Open> closed;
  if (removals <= removals_) return closed;
  removals_ = removals;
  places_.clear();
  closed.swap(open_);
  return closed;
}

std::shared_ptr<const EntryFile> EntryPool::Find(const SpanKey& key,
                                                 uint64_t removals) {
  std::list<Open> closed;  // after the lock
  MutexLock lock(&mutex_);
  closed = UpdateLocked(removals);
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  open_.splice(open_.begin(), open_, found->second);
  return found->second->second;
}

void EntryPool::Put(const SpanKey& key, std::shared_ptr<const EntryFile> entry,
                    uint64_t removals) {
  if (entry->size() > kMostBytes) return;
  std::list<Open> closed;  // after the lock
  MutexLock lock(&mutex_);
  closed = UpdateLocked(removals);
  if (removals < removals_ || places_.contains(key)) return;
  open_.emplace_front(key, std::move(entry));
  places_[key] = open_.begin();
  if (open_.size() <= capacity_) return;
  places_.erase(open_.back().first);
  closed.splice(closed.begin(), open_, std::prev(open_.end()));
}

void EntryPool::Drop(const SpanKey& key) {
  std::list<Open> closed;  // after the lock
  MutexLock lock(&mutex_);
  const auto found = places_.find(key);
  if (found == places_.end()) return;
  closed.splice(closed.begin(), open_, found->second);
  places_.erase(found);
}

void EntryPool::Update(uint64_t removals) {
  std::list<Open> closed;  // after the lock
  MutexLock lock(&mutex_);
  closed = UpdateLocked(removals);
}

void EntryPool::Clear() {
  std::list<Open> closed;  // after the lock
  MutexLock lock(&mutex_);
  places_.clear();
  closed.swap(open_);
}

size_t EntryPool::size() const {
  MutexLock lock(&mutex_);
  return open_.size();
}

}  // namespace ballast
