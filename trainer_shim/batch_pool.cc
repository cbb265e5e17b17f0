#include "trainer_shim/batch_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

void BatchEntry::Release() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // Keeps the pool alive: this entry's reference may be the last.
  const std::shared_ptr<BatchPool> pool = std::move(pool_);
  OnRelease();
  pool->Return(this);
}

BatchPool::BatchPool(uint32_t max_held, MakeEntry make)
    : max_held_(max_held), make_(std::move(make)) {}

absl::Status BatchPool::CheckRoom() const {
  MutexLock lock(&mutex_);
  if (held_.size() < max_held_) return absl::OkStatus();
  std::string message =
      absl::StrCat("all ", max_held_, " batches of max_batches_held are held:");
  const char* separator = " ";
  for (const BatchEntry* each : held_) {
    const uint32_t references = each->references();
    absl::StrAppend(&message, separator, "step ", each->info().step,
                    " micro-batch ", each->info().micro_batch, " (", references,
                    references == 1 ? " reference)" : " references)");
    separator = ", ";
  }
  absl::StrAppend(&message,
                  "; release those that are no longer needed, or raise "
                  "max_batches_held, and ask again");
  return absl::ResourceExhaustedError(message);
}

absl::Status BatchPool::Prepare(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    BALLAST_ASSIGN_OR_RETURN(BatchEntry * entry, Make());
    MutexLock lock(&mutex_);
    unused_.push_back(entry);
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchEntry*> BatchPool::Take() {
  {
    MutexLock lock(&mutex_);
    const auto free =
        std::find_if(free_.begin(), free_.end(),
                     [](BatchEntry* each) { return !each->IsBusy(); });
    if (free != free_.end()) {
      BatchEntry* entry = *free;
      free_.erase(free);
      return entry;
    }
    if (!unused_.empty()) {
      BatchEntry* entry = unused_.back();
      unused_.pop_back();
      return entry;
    }
  }
  return Make();
}

absl::StatusOr<BatchEntry*> BatchPool::Make() {
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<BatchEntry> made, make_());
  MutexLock lock(&mutex_);
  entries_.push_back(std::move(made));
  // Reserves the capacity, so that Return never allocates.
  held_.reserve(entries_.size());
  free_.reserve(entries_.size());
  return entries_.back().get();
}

BatchRef<BatchInfo> BatchPool::GiveOut(BatchEntry* entry) {
  entry->List(&entry->tensors_);
  entry->pool_ = shared_from_this();
  entry->references_ = 1;
  MutexLock lock(&mutex_);
  held_.push_back(entry);
  return BatchRef<BatchInfo>(entry);
}

void BatchPool::PutBack(BatchEntry* entry) {
  entry->OnRelease();
  MutexLock lock(&mutex_);
  free_.push_back(entry);
}

void BatchPool::Return(BatchEntry* entry) {
  std::vector<std::unique_ptr<BatchEntry>> gone;
  {
    MutexLock lock(&mutex_);
    held_.erase(std::find(held_.begin(), held_.end(), entry));
    if (!closed_) {
      free_.push_back(entry);
      return;
    }
    const auto at =
        std::find_if(entries_.begin(), entries_.end(),
                     [entry](const auto& each) { return each.get() == entry; });
    gone.push_back(std::move(*at));
    entries_.erase(at);
  }
  Destroy(std::move(gone));
}

void BatchPool::Destroy(std::vector<std::unique_ptr<BatchEntry>> entries) {
  struct Busy {
    Mutex mutex;
    std::vector<std::unique_ptr<BatchEntry>> entries ABSL_GUARDED_BY(mutex);
  };
  static auto* const busy = new Busy;
  {
    MutexLock lock(&busy->mutex);
    for (auto& each : busy->entries) entries.push_back(std::move(each));
    busy->entries.clear();
  }
  for (auto& each : entries) {
    if (!each->IsBusy()) continue;
    MutexLock lock(&busy->mutex);
    busy->entries.push_back(std::move(each));
  }
}

uint32_t BatchPool::held() const {
  MutexLock lock(&mutex_);
  return held_.size();
}

uint32_t BatchPool::entries() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

void BatchPool::Close() {
  std::vector<std::unique_ptr<BatchEntry>> gone;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    free_.clear();
    unused_.clear();
    for (auto& each : entries_) {
      if (std::find(held_.begin(), held_.end(), each.get()) == held_.end()) {
        gone.push_back(std::move(each));
      }
    }
    entries_.erase(std::remove(entries_.begin(), entries_.end(), nullptr),
                   entries_.end());
  }
  Destroy(std::move(gone));
}

}  // namespace ballast
