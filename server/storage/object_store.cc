#include "server/storage/object_store.h"

namespace ballast {

SpanMemory::SpanPtr SpanMemory::FindLocked(const SpanKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.span == nullptr) return nullptr;
  used_.splice(used_.begin(), used_, found->second.used);
  return found->second.span;
}

SpanMemory::SpanPtr SpanMemory::Find(const SpanKey& key) {
  MutexLock lock(&mutex_);
  return FindLocked(key);
}

absl::StatusOr<SpanMemory::SpanPtr> SpanMemory::Get(const SpanKey& key,
                                                    const Load& load) {
  {
    MutexLock lock(&mutex_);
    while (true) {
      if (SpanPtr span = FindLocked(key)) return span;
      if (entries_.try_emplace(key).second) break;
      // Another caller loads it, and the store's time-outs bound that.
      loaded_.Wait(&mutex_);
    }
  }
  absl::StatusOr<SpanPtr> span = load();
  std::vector<SpanPtr> forgotten;  // freed after the lock
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(key);
  if (!span.ok()) {
    entries_.erase(entry);
  } else {
    forgotten = Fill(key, entry->second, *span);
  }
  loaded_.NotifyAll();
  return span;
}

void SpanMemory::Put(const SpanKey& key, SpanPtr span) {
  std::vector<SpanPtr> forgotten;  // freed after the lock
  MutexLock lock(&mutex_);
  const auto [entry, is_new] = entries_.try_emplace(key);
  if (is_new) forgotten = Fill(key, entry->second, std::move(span));
}

std::vector<SpanMemory::SpanPtr> SpanMemory::Fill(const SpanKey& key,
                                                  Entry& entry, SpanPtr span) {
  std::vector<SpanPtr> forgotten;
  bytes_ += span->range().size;
  used_.push_front(key);
  entry = {std::move(span), used_.begin()};
  while (bytes_ > capacity_ && used_.size() > 1) {
    const auto oldest = entries_.find(used_.back());
    bytes_ -= oldest->second.span->range().size;
    forgotten.push_back(std::move(oldest->second.span));
    entries_.erase(oldest);
    used_.pop_back();
  }
  return forgotten;
}

uint64_t SpanMemory::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace ballast
