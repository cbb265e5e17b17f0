#include "server/storage/local_copy.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status_macros.h"

namespace ballast {

namespace {

constexpr uint64_t kPart = uint64_t{8} << 20;
constexpr char kPrefix[] = "ballast-copy";
// Attempts to make a file that no other process removes before it is locked.
constexpr int kAttempts = 20;

// Whether the open file still has a name.
bool IsThere(int descriptor) {
  struct stat status;
  return fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

// The copy that was requested last. Destroyed at the end of the process, with
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
  RemoveLeftCopies(folder);
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<LocalCopy> copy,
                           LocalCopy::Create(folder));
  const uint64_t size = object.stamp().size;
  for (uint64_t at = 0; at < size; at += kPart) {
    BALLAST_ASSIGN_OR_RETURN(const std::string bytes,
                             object.ReadAt(at, std::min(kPart, size - at)));
    BALLAST_RETURN_IF_ERROR(copy->Write(bytes));
  }
  BALLAST_RETURN_IF_ERROR(FileView(&object).CheckUnchanged());
  return copy;
}

}  // namespace

LocalCopy::~LocalCopy() { unlink(path().c_str()); }

absl::StatusOr<std::shared_ptr<LocalCopy>> LocalCopy::Create(
    const std::string& folder) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    BALLAST_ASSIGN_OR_RETURN(
        File file, File::CreateUnique(absl::StrCat(folder, "/", kPrefix)));
    OwnedFd lock(open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
    // Where files cannot be locked, no process takes another's copy for its
    // own.
    const bool is_mine =
        lock.get() >= 0 &&
        (flock(lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
        IsThere(lock.get());
    if (is_mine) {
      return std::shared_ptr<LocalCopy>(
          new LocalCopy(std::move(file), std::move(lock)));
    }
    const int number = errno;
    unlink(file.path().c_str());
    if (lock.get() < 0 && number != ENOENT) {
      return FileError(number, "open", file.path());
    }
    // Another process took it for a leftover file, and removes it.
  }
  return absl::UnavailableError(
      absl::StrCat(folder, ": other processes removed ", kAttempts,
                   " new files; set TMPDIR to another folder on a local disk"));
}

void RemoveLeftCopies(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!absl::StartsWith(entry->path().filename().string(),
                          absl::StrCat(kPrefix, "."))) {
      continue;
    }
    const OwnedFd file(
        open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.get() >= 0 && flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      unlink(path.c_str());
    }
  }
}

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

absl::StatusOr<std::string> ReadSmallObject(Storage* storage,
                                            const std::string& url,
                                            size_t most) {
  BALLAST_ASSIGN_OR_RETURN(const File file, storage->Open(url));
  const uint64_t size = file.stamp().size;
  if (size > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(url, ": ", size, " bytes; wanted at most ", most));
  }
  BALLAST_ASSIGN_OR_RETURN(std::string text, file.ReadAt(0, size));
  BALLAST_RETURN_IF_ERROR(FileView(&file).CheckUnchanged());
  return text;
}

}  // namespace ballast
