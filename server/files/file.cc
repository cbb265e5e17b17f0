#include "server/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

template <typename Time>
int64_t Nanoseconds(const Time& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileState GetState(const struct stat& status) {
  return {{static_cast<uint64_t>(status.st_size), Nanoseconds(status.st_mtim)},
          Nanoseconds(status.st_ctim)};
}

constexpr unsigned kStateMask = STATX_SIZE | STATX_MTIME | STATX_CTIME;

FileState GetState(const struct statx& status) {
  return {
      {static_cast<uint64_t>(status.stx_size), Nanoseconds(status.stx_mtime)},
      Nanoseconds(status.stx_ctime)};
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

absl::StatusOr<FileState> StateOfDescriptor(int descriptor,
                                            const std::string& path,
                                            ReadFrom from) {
  struct statx status;
  const int sync = from == ReadFrom::kMemory ? AT_STATX_DONT_SYNC : 0;
  if (statx(descriptor, "", AT_EMPTY_PATH | sync, kStateMask, &status) != 0) {
    return FileError(errno, "stat", path);
  }
  return GetState(status);
}

absl::StatusOr<FileStamp> StampFile(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return FileError(errno, "stat", path);
  if (!S_ISREG(status.st_mode)) return NotRegular(path);
  return GetState(status).stamp;
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
  file.opened_ = GetState(status);
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
            STATX_TYPE | kStateMask, &status) != 0 ||
      !S_ISREG(status.stx_mode)) {
    return NotInMemory(path);
  }
  file.opened_ = GetState(status);
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
  BALLAST_ASSIGN_OR_RETURN(
      file.opened_, StateOfDescriptor(descriptor, path, ReadFrom::kDisk));
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

absl::StatusOr<File> File::CreateUniqueLocked(const std::string& prefix) {
  // Another process may take the file for one left over before it is locked:
  // that one is removed then, and the next is most likely locked in time.
  constexpr int kAttempts = 100;
  for (int i = 0; i < kAttempts; ++i) {
    BALLAST_ASSIGN_OR_RETURN(File file, CreateUnique(prefix));
    if (flock(file.descriptor_, LOCK_EX | LOCK_NB) != 0) {
      // A file system without locks: nobody can lock, and so remove, the file.
      if (errno != EWOULDBLOCK) return file;
      continue;
    }
    struct stat status;
    if (fstat(file.descriptor_, &status) == 0 && status.st_nlink > 0) {
      return file;
    }
  }
  return absl::UnavailableError(
      absl::StrCat(prefix, ": other processes remove what this one creates"));
}

File::File(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

File File::OfStore(std::shared_ptr<const StoredObject> object) {
  File file(object->path(), -1);
  file.opened_.stamp = object->stamp();
  file.object_ = std::move(object);
  return file;
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      opened_(other.opened_),
      object_(std::move(other.object_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    Close();
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    opened_ = other.opened_;
    object_ = std::move(other.object_);
  }
  return *this;
}

File::~File() { Close(); }

void File::Close() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<FileState> File::State(ReadFrom from) const {
  if (object_ != nullptr) return opened_;
  return StateOfDescriptor(descriptor_, path_, from);
}

absl::Status File::ReadAt(uint64_t offset, uint64_t size, char* out,
                          ReadFrom from) const {
  if (object_ != nullptr) {
    if (offset > opened_.stamp.size || size > opened_.stamp.size - offset) {
      return absl::DataLossError(absl::StrCat(path_, ": ends at byte ",
                                              opened_.stamp.size, ", wanted ",
                                              size, " bytes at ", offset));
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
      BALLAST_ASSIGN_OR_RETURN(const FileState now,
                               StateOfDescriptor(descriptor_, path_, from));
      if (now.stamp.size > offset + done) {
        return absl::UnavailableError(
            absl::StrCat(path_, ": cannot read: no bytes at ", offset + done,
                         " of ", now.stamp.size));
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
  if (offset > opened_.stamp.size || size > opened_.stamp.size - offset) {
    return absl::DataLossError(absl::StrCat(path_, ": ends at byte ",
                                            opened_.stamp.size, ", wanted ",
                                            size, " bytes at ", offset));
  }
  std::string bytes(size, '\0');
  BALLAST_RETURN_IF_ERROR(ReadAt(offset, size, bytes.data(), from));
  return bytes;
}

absl::StatusOr<const char*> File::Map() const {
  void* data =
      mmap(nullptr, opened_.stamp.size, PROT_READ, MAP_PRIVATE, descriptor_, 0);
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

absl::Status File::SetTime(int64_t mtime_ns) {
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec times[] = {
      {0, UTIME_OMIT},
      {static_cast<time_t>(mtime_ns / kSecond), mtime_ns % kSecond}};
  if (futimens(descriptor_, times) != 0) {
    return FileError(errno, "set the time of", path_);
  }
  return absl::OkStatus();
}

absl::Status File::Sync() {
  if (fsync(descriptor_) != 0) return FileError(errno, "sync", path_);
  return absl::OkStatus();
}

absl::Status FileView::Begin() {
  BALLAST_ASSIGN_OR_RETURN(begin_, file_->State(from_));
  return absl::OkStatus();
}

absl::Status FileView::CheckUnchanged() const {
  const auto changed = [&] {
    return absl::UnavailableError(absl::StrCat(
        path(), ": changed ", object() == nullptr ? "" : "in the store ",
        "while it was read"));
  };
  if (loaded_) return absl::OkStatus();
  if (object() != nullptr) {
    if (from_ == ReadFrom::kMemory) return NotInMemory(path());
    BALLAST_ASSIGN_OR_RETURN(const bool unchanged, object()->IsUnchanged());
    return unchanged ? absl::OkStatus() : changed();
  }
  BALLAST_ASSIGN_OR_RETURN(const FileState now, file_->State(from_));
  return now == begin_ ? absl::OkStatus() : changed();
}

absl::Status FileView::Load(const std::vector<ByteRange>& ranges) {
  if (file_->object() == nullptr) return absl::OkStatus();
  loaded_ = true;
  for (const ByteRange& range : ranges) {
    const bool is_here = std::any_of(
        ranges_.begin(), ranges_.end(),
        [&](const auto& loaded) { return loaded->range().Covers(range); });
    if (is_here) continue;
    BALLAST_ASSIGN_OR_RETURN(std::shared_ptr<const StoredRange> fetched,
                             file_->object()->Fetch(range, owner_, from_));
    ranges_.push_back(std::move(fetched));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const StoredRange>> FileView::RangeAt(
    ByteRange range) const {
  for (const std::shared_ptr<const StoredRange>& loaded : ranges_) {
    if (loaded->range().Covers(range)) return loaded;
  }
  if (!loaded_ || range.size == 0) return nullptr;
  return file_->object()->Fetch(range, owner_, from_);
}

absl::Status FileView::ReadAt(uint64_t offset, uint64_t size, char* out) const {
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const StoredRange> range,
                           RangeAt({offset, size}));
  return range == nullptr ? file_->ReadAt(offset, size, out, from_)
                          : range->ReadAt(offset, size, out);
}

absl::StatusOr<std::string> FileView::ReadAt(uint64_t offset,
                                             uint64_t size) const {
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const StoredRange> range,
                           RangeAt({offset, size}));
  if (range == nullptr) return file_->ReadAt(offset, size, from_);
  std::string bytes(size, '\0');
  BALLAST_RETURN_IF_ERROR(range->ReadAt(offset, size, bytes.data()));
  return bytes;
}

void FileView::ReadSoon(ByteRange range) const {
  file_->ReadSoon(range);
  for (const std::shared_ptr<const StoredRange>& loaded : ranges_) {
    if (loaded->range().Covers(range)) loaded->ReadSoon(range);
  }
}

bool FileView::IsInCache() const {
  return !ranges_.empty() &&
         std::all_of(ranges_.begin(), ranges_.end(),
                     [](const auto& loaded) { return loaded->IsInCache(); });
}

absl::Status ReadPieces(const FileView& file,
                        absl::Span<const FilePiece> pieces,
                        absl::string_view others, char* out) {
  for (const FilePiece& piece : pieces) {
    if (piece.in_file) {
      BALLAST_RETURN_IF_ERROR(file.ReadAt(piece.offset, piece.size, out));
    } else {
      std::memcpy(out, others.data() + piece.offset, piece.size);
    }
    out += piece.size;
  }
  return absl::OkStatus();
}

namespace {

constexpr absl::string_view kWriting = ".writing";

// Syncs the folder, so that a crash of the machine cannot undo the rename.
absl::Status SyncFolder(const std::string& folder) {
  const OwnedFd descriptor(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) return FileError(errno, "open", folder);
  // Some file systems cannot sync a folder; the file itself is on the disk.
  if (fsync(descriptor.get()) != 0 && errno != EINVAL) {
    return FileError(errno, "sync", folder);
  }
  return absl::OkStatus();
}

// The folder of `path`.
std::string GetFolder(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

void RemoveUnfinished(const std::string& folder, absl::string_view name) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string found = entry->path().filename().string();
    const size_t at = found.rfind(absl::StrCat(kWriting, "."));
    if (at == std::string::npos ||
        (!name.empty() && found.substr(0, at) != name)) {
      continue;
    }
    const OwnedFd left(
        open(entry->path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    // Its writer, if it lives, has the lock.
    if (left.get() >= 0 && flock(left.get(), LOCK_EX | LOCK_NB) == 0) {
      unlink(entry->path().c_str());
    }
  }
}

absl::Status CheckReplaceable(const std::string& path) {
  struct stat found;
  // No rename replaces a folder.
  if (stat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode) ||
      S_ISDIR(found.st_mode)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, " is no regular file and is not replaced; wanted a new path"));
}

absl::Status ReplaceFile(const std::string& path,
                         absl::FunctionRef<absl::Status(File& file)> write) {
  BALLAST_RETURN_IF_ERROR(CheckReplaceable(path));
  const std::string folder = GetFolder(path);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return FileError(error.value(), "make the folder", folder);
  BALLAST_ASSIGN_OR_RETURN(
      File file, File::CreateUniqueLocked(absl::StrCat(path, kWriting)));
  absl::Cleanup remove = [&] { unlink(file.path().c_str()); };
  BALLAST_RETURN_IF_ERROR(write(file));
  BALLAST_RETURN_IF_ERROR(file.Sync());
  if (rename(file.path().c_str(), path.c_str()) != 0) {
    return FileError(errno, "replace", path);
  }
  std::move(remove).Cancel();
  return SyncFolder(folder);
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> pieces) {
  RemoveUnfinished(GetFolder(path),
                   std::filesystem::path(path).filename().string());
  return ReplaceFile(path, [&](File& file) -> absl::Status {
    for (const absl::string_view piece : pieces) {
      BALLAST_RETURN_IF_ERROR(file.Write(piece));
    }
    return absl::OkStatus();
  });
}

}  // namespace ballast
