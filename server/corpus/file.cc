#include "server/corpus/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

FileStamp StampOf(const struct stat& status) {
  return {
      static_cast<uint64_t>(status.st_size),
      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

FileStamp StampOf(const struct statx& status) {
  return {static_cast<uint64_t>(status.stx_size),
          int64_t{status.stx_mtime.tv_sec} * 1'000'000'000 +
              status.stx_mtime.tv_nsec};
}

absl::Status NotInMemory(absl::string_view path) {
  return absl::AbortedError(absl::StrCat(path, ": not in memory"));
}

// Files of a tmpfs are in memory, although it does not support RWF_NOWAIT.
bool LiesInMemory(int descriptor) {
  struct statfs system;
  return fstatfs(descriptor, &system) == 0 &&
         (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

// Like pread. kMemory: returns fewer bytes, or sets errno, instead of waiting
// for the disk.
ssize_t ReadSome(int descriptor, char* out, uint64_t size, off_t offset,
                 ReadFrom from) {
  if (from == ReadFrom::kDisk) return pread(descriptor, out, size, offset);
  const iovec to = {out, size};
  const ssize_t count = preadv2(descriptor, &to, 1, offset, RWF_NOWAIT);
  if (count >= 0 || errno != EOPNOTSUPP || !LiesInMemory(descriptor)) {
    return count;
  }
  return pread(descriptor, out, size, offset);
}

// Advice to the user.
absl::string_view AdviceFor(int number) {
  switch (number) {
    case EMFILE:
      return "; raise the limit of open files (ulimit -n, LimitNOFILE)";
    case ENFILE:
      return "; raise the system's limit of open files (fs.file-max)";
    case ENOMEM:
      return "; the machine is out of memory";
    case ESTALE:
      return "; was the file replaced on its file server?";
    case EIO:
      return "; does the disk or file server fail? see the kernel's log";
    default:
      return "";
  }
}

// Returns whether the error comes from the path or from permissions, so that a
// retry cannot help.
bool IsLasting(int number) {
  switch (number) {
    case EACCES:
    case EDQUOT:
    case EEXIST:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOENT:
    case ENOSPC:
    case ENOTDIR:
    case EPERM:
    case EROFS:
      return true;
    default:
      return false;
  }
}

absl::Status NotRegular(absl::string_view path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
}

}  // namespace

absl::Status FileError(int number, absl::string_view action,
                       absl::string_view path) {
  const std::string what = absl::StrCat(path, ": cannot ", action);
  if (IsLasting(number)) return absl::ErrnoToStatus(number, what);
  return absl::UnavailableError(
      absl::StrCat(what, ": ", std::generic_category().message(number),
                   " (errno ", number, ")", AdviceFor(number)));
}

bool OpensAlone(int descriptor) {
  struct statfs system;
  if (fstatfs(descriptor, &system) != 0) return false;
  switch (system.f_type) {
    case BTRFS_SUPER_MAGIC:
    case EXT4_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case XFS_SUPER_MAGIC:
      return true;
  }
  return false;
}

absl::StatusOr<FileStamp> StampDescriptor(int descriptor,
                                          const std::string& path,
                                          ReadFrom from) {
  struct statx status;
  const int sync = from == ReadFrom::kMemory ? AT_STATX_DONT_SYNC : 0;
  if (statx(descriptor, "", AT_EMPTY_PATH | sync, STATX_SIZE | STATX_MTIME,
            &status) != 0) {
    return FileError(errno, "stat", path);
  }
  return StampOf(status);
}

absl::StatusOr<FileStamp> StampFile(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return FileError(errno, "stat", path);
  if (!S_ISREG(status.st_mode)) return NotRegular(path);
  return StampOf(status);
}

absl::StatusOr<File> File::Open(const std::string& path) {
  // O_NONBLOCK opens a pipe (which is then refused) without waiting for a
  // writer. It has no effect on regular files.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return FileError(errno, "open", path);
  File file(path, descriptor);
  struct stat status;
  if (fstat(descriptor, &status) != 0) return FileError(errno, "stat", path);
  if (!S_ISREG(status.st_mode)) return NotRegular(path);
  file.stamp_ = StampOf(status);
  return file;
}

absl::StatusOr<File> File::OpenInMemory(int folder, absl::string_view path,
                                        const std::string& relative) {
  open_how how = {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_CACHED | RESOLVE_BENEATH | RESOLVE_NO_XDEV;
  const int descriptor = static_cast<int>(
      syscall(SYS_openat2, folder, relative.c_str(), &how, sizeof(how)));
  if (descriptor < 0) return NotInMemory(path);
  File file(std::string(path), descriptor);
  struct statx status;
  if (statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
            STATX_TYPE | STATX_SIZE | STATX_MTIME, &status) != 0 ||
      !S_ISREG(status.stx_mode)) {
    return NotInMemory(path);
  }
  file.stamp_ = StampOf(status);
  return file;
}

absl::StatusOr<File> File::Create(const std::string& path) {
  const int descriptor =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return FileError(errno, "create", path);
  return File(path, descriptor);
}

absl::StatusOr<File> File::OpenToAppend(const std::string& path) {
  const int descriptor =
      open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return FileError(errno, "open", path);
  File file(path, descriptor);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FileError(errno, "lock", path);
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": another process is writing it"));
  }
  BALLAST_ASSIGN_OR_RETURN(file.stamp_,
                           StampDescriptor(descriptor, path, ReadFrom::kDisk));
  return file;
}

absl::StatusOr<File> File::CreateUnique(const std::string& prefix) {
  std::string path = absl::StrCat(prefix, ".XXXXXX");
  const int descriptor = mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0) return FileError(errno, "create", path);
  File file(path, descriptor);
  // mkostemp makes the file readable by its owner alone; other users may serve
  // from it.
  if (fchmod(descriptor, 0644) != 0) return FileError(errno, "chmod", path);
  return file;
}

File::File(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

File File::OfStore(std::shared_ptr<const StoredObject> object) {
  File file(object->path(), -1);
  file.stamp_ = object->stamp();
  file.object_ = std::move(object);
  return file;
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      stamp_(other.stamp_),
      object_(std::move(other.object_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    Close();
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    stamp_ = other.stamp_;
    object_ = std::move(other.object_);
  }
  return *this;
}

File::~File() { Close(); }

void File::Close() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<bool> File::IsUnchanged(ReadFrom from) const {
  if (object_ != nullptr) {
    if (from == ReadFrom::kMemory) return NotInMemory(path_);
    return object_->IsUnchanged();
  }
  BALLAST_ASSIGN_OR_RETURN(const FileStamp now,
                           StampDescriptor(descriptor_, path_, from));
  return now == stamp_;
}

absl::Status File::ReadAt(uint64_t offset, uint64_t size, char* out,
                          ReadFrom from) const {
  if (object_ != nullptr) {
    if (offset > stamp_.size || size > stamp_.size - offset) {
      return absl::DataLossError(absl::StrCat(path_, ": ends at byte ",
                                              stamp_.size, ", wanted ", size,
                                              " bytes at ", offset));
    }
    return size == 0 ? absl::OkStatus()
                     : object_->ReadAt(offset, size, out, from);
  }
  uint64_t done = 0;
  while (done < size) {
    const ssize_t count = ReadSome(descriptor_, out + done, size - done,
                                   static_cast<off_t>(offset + done), from);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && from == ReadFrom::kMemory) return NotInMemory(path_);
    if (count < 0) return FileError(errno, "read", path_);
    if (count == 0) {
      // No bytes: the end of the file, unless the file system says otherwise.
      BALLAST_ASSIGN_OR_RETURN(const FileStamp now,
                               StampDescriptor(descriptor_, path_, from));
      if (now.size > offset + done) {
        return absl::UnavailableError(
            absl::StrCat(path_, ": cannot read: no bytes at ", offset + done,
                         " of ", now.size));
      }
      return absl::DataLossError(absl::StrCat(path_, ": ends at byte ",
                                              offset + done, ", wanted ", size,
                                              " bytes at ", offset));
    }
    done += static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> File::ReadAt(uint64_t offset, uint64_t size,
                                         ReadFrom from) const {
  if (offset > stamp_.size || size > stamp_.size - offset) {
    return absl::DataLossError(absl::StrCat(path_, ": ends at byte ",
                                            stamp_.size, ", wanted ", size,
                                            " bytes at ", offset));
  }
  std::string bytes(size, '\0');
  BALLAST_RETURN_IF_ERROR(ReadAt(offset, size, bytes.data(), from));
  return bytes;
}

absl::StatusOr<const char*> File::Map() const {
  void* data =
      mmap(nullptr, stamp_.size, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (data == MAP_FAILED) return FileError(errno, "map", path_);
  return static_cast<const char*>(data);
}

absl::StatusOr<OwnedFd> File::Duplicate() const {
  OwnedFd copy(fcntl(descriptor_, F_DUPFD_CLOEXEC, 0));
  if (copy.get() < 0) return FileError(errno, "duplicate", path_);
  return copy;
}

absl::StatusOr<std::string> File::RealPath() const {
  std::error_code error;
  std::string real = std::filesystem::read_symlink(
                         absl::StrCat("/proc/self/fd/", descriptor_), error)
                         .string();
  if (error) return FileError(error.value(), "find the real path", path_);
  return real;
}

void File::ReadSoon(ByteRange range) const {
  if (descriptor_ < 0) return;
  (void)posix_fadvise(descriptor_, static_cast<off_t>(range.offset),
                      static_cast<off_t>(range.size), POSIX_FADV_WILLNEED);
}

absl::Status File::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(errno, "write", path_);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status File::Truncate(uint64_t size) {
  if (ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    return FileError(errno, "truncate", path_);
  }
  return absl::OkStatus();
}

absl::Status File::Sync() {
  if (fsync(descriptor_) != 0) return FileError(errno, "sync", path_);
  return absl::OkStatus();
}

}  // namespace ballast
