#include "server/storage/local_copy.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "server/corpus/file.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

constexpr uint64_t kPart = uint64_t{8} << 20;

// The copy that was asked for last. Destroyed at the end of the process, with
// the file.
struct Last {
  Mutex mutex;
  std::string url ABSL_GUARDED_BY(mutex);
  FileStamp stamp ABSL_GUARDED_BY(mutex);
  std::shared_ptr<const LocalCopy> copy ABSL_GUARDED_BY(mutex);
};

absl::StatusOr<std::shared_ptr<const LocalCopy>> Fetch(const File& object) {
  std::error_code error;
  const std::string folder = std::filesystem::temp_directory_path(error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat(object.path(), ": cannot be copied: ", error.message(),
                     "; set TMPDIR to a folder on a local disk"));
  }
  BALLAST_ASSIGN_OR_RETURN(
      File file, File::CreateUnique(absl::StrCat(folder, "/ballast-copy")));
  auto copy = std::make_shared<const LocalCopy>(file.path());
  const uint64_t size = object.stamp().size;
  for (uint64_t at = 0; at < size; at += kPart) {
    BALLAST_ASSIGN_OR_RETURN(const std::string bytes,
                             object.ReadAt(at, std::min(kPart, size - at)));
    BALLAST_RETURN_IF_ERROR(file.Write(bytes));
  }
  BALLAST_ASSIGN_OR_RETURN(const bool unchanged, object.IsUnchanged());
  if (unchanged) return copy;
  return absl::UnavailableError(
      absl::StrCat(object.path(), ": changed in the store while it was read"));
}

}  // namespace

LocalCopy::~LocalCopy() { unlink(path_.c_str()); }

absl::StatusOr<std::shared_ptr<const LocalCopy>> CopyToDisk(
    const std::string& url) {
  static Last last;
  BALLAST_ASSIGN_OR_RETURN(const FileStamp stamp,
                           Storage::OfProcess().Stamp(url));
  MutexLock lock(&last.mutex);
  if (last.copy != nullptr && last.url == url && last.stamp == stamp) {
    return last.copy;
  }
  BALLAST_ASSIGN_OR_RETURN(const File object, Storage::OfProcess().Open(url));
  BALLAST_ASSIGN_OR_RETURN(auto copy, Fetch(object));
  last.copy = copy;
  last.url = url;
  last.stamp = object.stamp();
  return copy;
}

}  // namespace ballast
