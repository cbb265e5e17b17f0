#include "server/corpus/parquet/row_group_cache.h"

namespace ballast {

std::shared_ptr<RowGroupCache> RowGroupCache::OfProcess() {
  static const auto& cache = *new std::shared_ptr<RowGroupCache>(
      std::make_shared<RowGroupCache>(uint64_t{2} << 30));
  return cache;
}

void RowGroupCache::SetCapacity(uint64_t capacity) {
  std::vector<Part> forgotten;
  MutexLock lock(&mutex_);
  capacity_ = capacity;
  forgotten = Evict();
}

RowGroupCache::Part RowGroupCache::FindLocked(const Key& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.part == nullptr) return nullptr;
  used_.splice(used_.begin(), used_, found->second.used);
  return found->second.part;
}

RowGroupCache::Part RowGroupCache::Find(const Key& key) {
  MutexLock lock(&mutex_);
  return FindLocked(key);
}

absl::StatusOr<RowGroupCache::Part> RowGroupCache::Get(const Key& key,
                                                       const Load& load) {
  {
    MutexLock lock(&mutex_);
    while (true) {
      if (Part part = FindLocked(key)) return part;
      if (entries_.try_emplace(key).second) break;
      // Somebody loads it, and is bounded by the timeout of a read as we are.
      loaded_.Wait(&mutex_);
    }
    ++loads_;
  }
  absl::StatusOr<Part> part = load();
  std::vector<Part> forgotten;  // freed after the lock
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(key);
  if (!part.ok()) {
    entries_.erase(entry);
  } else {
    used_.push_front(key);
    entry->second = {*part, used_.begin()};
    bytes_ += (*part)->bytes();
    forgotten = Evict();
  }
  loaded_.NotifyAll();
  return part;
}

void RowGroupCache::Drop(const Key& key) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.part == nullptr) return;
  bytes_ -= found->second.part->bytes();
  used_.erase(found->second.used);
  entries_.erase(found);
}

void RowGroupCache::DropSource(const void* source) {
  MutexLock lock(&mutex_);
  for (auto key = used_.begin(); key != used_.end();) {
    if (key->source != source) {
      ++key;
      continue;
    }
    const auto found = entries_.find(*key);
    bytes_ -= found->second.part->bytes();
    entries_.erase(found);
    key = used_.erase(key);
  }
}

uint64_t RowGroupCache::capacity() const {
  MutexLock lock(&mutex_);
  return capacity_;
}

uint64_t RowGroupCache::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

uint64_t RowGroupCache::loads() const {
  MutexLock lock(&mutex_);
  return loads_;
}

std::vector<RowGroupCache::Part> RowGroupCache::Evict() {
  std::vector<Part> forgotten;
  while (bytes_ > capacity_ && used_.size() > 1) {
    const auto oldest = entries_.find(used_.back());
    bytes_ -= oldest->second.part->bytes();
    forgotten.push_back(std::move(oldest->second.part));
    entries_.erase(oldest);
    used_.pop_back();
  }
  return forgotten;
}

}  // namespace ballast
