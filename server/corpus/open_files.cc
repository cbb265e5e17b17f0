#include "server/corpus/open_files.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

OpenFiles::OpenFiles(std::vector<SourceFile> files)
    : files_(std::move(files)) {}

absl::StatusOr<std::shared_ptr<const File>> OpenFiles::Get(
    uint32_t number, const FileStamp& stamp, ReadFrom from) const {
  Place& place = places_[number % kMaxOpen];
  {
    MutexLock lock(&place.mutex);
    if (place.file != nullptr && place.number == number) return place.file;
  }
  const std::string& path = files_[number].path;
  if (from == ReadFrom::kMemory) {
    return absl::AbortedError(absl::StrCat(path, ": not open"));
  }
  // Without the lock: an open that hangs must not keep those who read from
  // memory. Two threads may open the same file; the later stays.
  BALLAST_ASSIGN_OR_RETURN(File opened, File::Open(path));
  if (!(opened.stamp() == stamp)) {
    return absl::DataLossError(
        absl::StrCat(path, ": changed since it was indexed"));
  }
  auto file = std::make_shared<const File>(std::move(opened));
  std::shared_ptr<const File> before;  // closed without the lock
  MutexLock lock(&place.mutex);
  place.number = number;
  before = std::exchange(place.file, file);
  return file;
}

}  // namespace ballast
