#include "server/corpus/open_file_cache.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "common/machine.h"
#include "server/storage/storage.h"

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

OpenFiles::OpenFiles(std::vector<SourceFile> files,
                     std::shared_ptr<OpenFileCache> cache)
    : files_(std::move(files)),
      cache_(std::move(cache)),
      slots_(new OpenFileCache::Slot[files_.size()]) {}

OpenFiles::~OpenFiles() {
  for (size_t i = 0; i < files_.size(); ++i) {
    cache_->Remove(&slots_[i], nullptr);
  }
}

absl::StatusOr<std::shared_ptr<const File>> OpenFiles::Get(
    uint32_t number, ReadFrom from) const {
  OpenFileCache::Slot& slot = slots_[number];
  if (std::shared_ptr<const File> file = slot.Get(*cache_)) return file;
  const std::string& path = files_[number].path;
  if (from == ReadFrom::kMemory) {
    return absl::AbortedError(absl::StrCat(path, ": not open"));
  }
  // Opens without a lock: an open that hangs must not block readers from
  // memory. Two threads may open the same file; the later one is kept.
  absl::StatusOr<File> opened = Storage::OfProcess().Open(path);
  if (!opened.ok()) {
    // Frees descriptors for a retry. A file that is missing or unreadable says
    // nothing about its bytes, whatever the code.
    cache_->CloseHalf();
    return absl::UnavailableError(opened.status().message());
  }
  auto file = std::make_shared<const File>(*std::move(opened));
  cache_->Put(&slot, file);
  return file;
}

void OpenFiles::Drop(uint32_t number, const File& file) const {
  cache_->Remove(&slots_[number], &file);
}

}  // namespace ballast
