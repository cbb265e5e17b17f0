#include "server/corpus/open_file_cache.h"

#include <algorithm>
#include <utility>

#include "server/corpus/descriptor_limit.h"

namespace ballast {

std::shared_ptr<const File> OpenFileCache::Slot::Get(
    const OpenFileCache& cache) {
  MutexLock lock(&mutex_);
  if (file_ != nullptr) {
    last_used_.store(cache.uses_.fetch_add(1, std::memory_order_relaxed),
                     std::memory_order_relaxed);
  }
  return file_;
}

std::shared_ptr<OpenFileCache> OpenFileCache::OfProcess() {
  static const auto* const cache =
      new std::shared_ptr<OpenFileCache>(std::make_shared<OpenFileCache>(
          std::clamp<uint64_t>(RaiseDescriptorLimit() / 4, 8, 4096)));
  return *cache;
}

void OpenFileCache::Put(Slot* slot, std::shared_ptr<const File> file) {
  std::shared_ptr<const File> before;  // closed outside the locks
  MutexLock lock(&mutex_);
  if (std::find(open_.begin(), open_.end(), slot) == open_.end()) {
    while (open_.size() >= std::max<size_t>(capacity_, 1)) CloseOldest();
    open_.push_back(slot);
  }
  slot->last_used_.store(uses_.fetch_add(1, std::memory_order_relaxed),
                         std::memory_order_relaxed);
  MutexLock slot_lock(&slot->mutex_);
  before = std::exchange(slot->file_, std::move(file));
}

void OpenFileCache::Remove(Slot* slot, const File* file) {
  std::shared_ptr<const File> before;  // closed outside the locks
  MutexLock lock(&mutex_);
  MutexLock slot_lock(&slot->mutex_);
  if (file != nullptr && slot->file_.get() != file) return;
  before = std::move(slot->file_);
  slot->file_ = nullptr;
  open_.erase(std::remove(open_.begin(), open_.end(), slot), open_.end());
}

void OpenFileCache::CloseHalf() {
  MutexLock lock(&mutex_);
  const size_t kept = open_.size() / 2;
  while (open_.size() > kept) CloseOldest();
}

void OpenFileCache::CloseOldest() {
  const auto oldest = std::min_element(
      open_.begin(), open_.end(), [](const Slot* a, const Slot* b) {
        return a->last_used_.load(std::memory_order_relaxed) <
               b->last_used_.load(std::memory_order_relaxed);
      });
  Slot* const slot = *oldest;
  open_.erase(oldest);
  MutexLock slot_lock(&slot->mutex_);
  slot->file_ = nullptr;
}

}  // namespace ballast
