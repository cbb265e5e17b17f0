#include "server/corpus/open_files.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/storage/storage.h"

namespace ballast {

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
