#include "server/corpus/open_files.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

OpenFiles::OpenFiles(std::vector<SourceFile> files)
    : files_(std::move(files)) {}

absl::StatusOr<std::shared_ptr<const File>> OpenFiles::Get(
    uint32_t number, const FileStamp& stamp) const {
  Place& place = places_[number % kMaxOpen];
  MutexLock lock(&place.mutex);
  if (place.file != nullptr && place.number == number) return place.file;
  BALLAST_ASSIGN_OR_RETURN(File file, File::Open(files_[number].path));
  if (!(file.stamp() == stamp)) {
    return absl::DataLossError(
        absl::StrCat(files_[number].path, ": changed since it was indexed"));
  }
  place.number = number;
  place.file = std::make_shared<const File>(std::move(file));
  return place.file;
}

}  // namespace ballast
