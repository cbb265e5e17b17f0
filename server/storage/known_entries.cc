#include "server/storage/known_entries.h"

namespace ballast {

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

}  // namespace ballast
