#include "server/storage/entry_pool.h"

#include <algorithm>
#include <iterator>

#include "absl/container/flat_hash_map.h"

namespace ballast {

std::vector<uint64_t> NextUses(
    absl::Span<const uint64_t> owners, uint64_t from, uint64_t end,
    absl::FunctionRef<void(uint64_t position, std::vector<uint64_t>* owners)>
        add_owners) {
  absl::flat_hash_map<uint64_t, uint64_t> first;
  first.reserve(owners.size());
  for (const uint64_t owner : owners) first.try_emplace(owner, kNeverUsed);
  size_t missing = first.size();
  std::vector<uint64_t> used;
  for (uint64_t at = from; at < end && missing > 0; ++at) {
    used.clear();
    add_owners(at, &used);
    for (const uint64_t owner : used) {
      const auto found = first.find(owner);
      if (found == first.end() || found->second != kNeverUsed) continue;
      found->second = at;
      --missing;
    }
  }
  std::vector<uint64_t> uses;
  uses.reserve(owners.size());
  for (const uint64_t owner : owners) uses.push_back(first[owner]);
  return uses;
}

std::vector<size_t> ChooseVictims(absl::Span<const CacheEntry> entries,
                                  uint64_t wanted, uint64_t spare,
                                  uint64_t needed_at) {
  std::vector<size_t> order;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].next_use > needed_at) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (entries[a].next_use != entries[b].next_use) {
      return entries[a].next_use > entries[b].next_use;
    }
    if (entries[a].bytes != entries[b].bytes) {
      return entries[a].bytes > entries[b].bytes;
    }
    return a < b;
  });
  uint64_t freed = 0;
  size_t count = 0;
  while (count < order.size() && freed < wanted + spare) {
    freed += entries[order[count++]].bytes;
  }
  if (freed < wanted) return {};
  order.resize(count);
  return order;
}

void KnownEntries::Update(uint64_t removals) {
  if (removals <= removals_) return;
  removals_ = removals;
  entries_.clear();
}

bool KnownEntries::Has(uint64_t entry, uint64_t removals) {
  MutexLock lock(&mutex_);
  Update(removals);
  return entries_.contains(entry);
}

void KnownEntries::Add(uint64_t entry, uint64_t removals) {
  MutexLock lock(&mutex_);
  Update(removals);
  if (removals < removals_) return;
  if (entries_.size() >= capacity_) entries_.clear();
  entries_.insert(entry);
}

void KnownEntries::Drop(uint64_t entry) {
  MutexLock lock(&mutex_);
  entries_.erase(entry);
}

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
  if (entry->size() > kMaxBytes) return;
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
