#include "server/delivery/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Allocated in the file system in steps of this size.
constexpr uint64_t kReserveBytes = uint64_t{16} << 20;
// A cleaner may mistake a new file for a stale one until it is locked.
constexpr int kAttempts = 8;
constexpr char kSuffix[] = ".arena";

std::string FilePrefix() { return absl::StrCat("ballast-", getuid(), "-"); }

absl::Status SystemError(absl::string_view what, const std::string& path) {
  const int error = errno;
  const std::string message =
      absl::StrCat("arena: cannot ", what, " ", path, ": ", strerror(error));
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
  }
  return absl::UnavailableError(message);
}

absl::Status FillRandom(void* bytes, size_t size) {
  if (getrandom(bytes, size, 0) == static_cast<ssize_t>(size)) {
    return absl::OkStatus();
  }
  return SystemError("draw", "random bytes");
}

// Returns whether `path` still names the file that is open at `descriptor`.
bool Names(const std::string& path, int descriptor) {
  struct stat open_file, named;
  return fstat(descriptor, &open_file) == 0 &&
         lstat(path.c_str(), &named) == 0 && open_file.st_dev == named.st_dev &&
         open_file.st_ino == named.st_ino;
}

// Checks the size of the file system, not its free space: clients may still
// hold the arena of a server that this one replaces.
absl::Status CheckSize(const std::string& directory, uint64_t bytes) {
  struct statvfs file_system;
  if (statvfs(directory.c_str(), &file_system) != 0) {
    return SystemError("look at", directory);
  }
  const uint64_t page = file_system.f_frsize;
  const uint64_t size = uint64_t{file_system.f_blocks} * page;
  if (size < bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "arena: ", directory, " has room for ", size,
        " bytes, wanted serve.memory, which is ", bytes,
        "; make the file system larger (a container's /dev/shm has 64 MiB "
        "unless told otherwise), lower serve.memory or name another directory "
        "in serve.arena"));
  }
  const uint64_t room = uint64_t{file_system.f_bavail} * page;
  if (room < bytes) {
    LogWarning("arena: ", directory, " has only ", room, " of ", size,
               " bytes free, wanted serve.memory, which is ", bytes,
               "; blocks that do not fit go over the stream until ranks let go "
               "of an earlier server's arena, or other files are removed");
  }
  return absl::OkStatus();
}

bool LiesInMemory(const std::string& directory) {
  struct statfs file_system;
  return statfs(directory.c_str(), &file_system) == 0 &&
         (file_system.f_type == TMPFS_MAGIC ||
          file_system.f_type == RAMFS_MAGIC);
}

// Allocates the bytes [begin, end) of a file; returns 0 or an errno.
int Allocate(int descriptor, uint64_t begin, uint64_t end) {
  int error = 0;
  do {
    error = posix_fallocate(descriptor, begin, end - begin);
  } while (error == EINTR);
  return error;
}

// Creates a file that no cleaner can mistake for a stale one.
absl::StatusOr<int> CreateLocked(const std::string& directory,
                                 ArenaIdentity* identity) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    char random[kArenaIdDigits / 2];
    BALLAST_RETURN_IF_ERROR(FillRandom(random, sizeof(random)));
    identity->id =
        absl::BytesToHexString(absl::string_view(random, sizeof(random)));
    identity->path =
        absl::StrCat(directory, "/", FilePrefix(), identity->id, kSuffix);
    const char* path = identity->path.c_str();
    const int descriptor =
        open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (descriptor < 0) return SystemError("make", identity->path);
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 &&
        Names(identity->path, descriptor)) {
      // Sets the mode regardless of the umask.
      if (fchmod(descriptor, 0640) == 0) return descriptor;
      const absl::Status status = SystemError("set the mode of", path);
      unlink(path);
      close(descriptor);
      return status;
    }
    close(descriptor);
  }
  return absl::UnavailableError(absl::StrCat("arena: files made in ", directory,
                                             " are taken away at once"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::CreateShared(
    const std::string& directory, uint64_t bytes) {
  const int stale = RemoveStaleArenas(directory);
  if (stale > 0) {
    LogInfo("removed ", stale, " arenas of dead servers from ", directory);
  }
  bytes = std::max(bytes / kArenaPage, uint64_t{1}) * kArenaPage;
  BALLAST_RETURN_IF_ERROR(CheckSize(directory, bytes));
  std::unique_ptr<Arena> arena(new Arena);
  BALLAST_ASSIGN_OR_RETURN(arena->descriptor_,
                           CreateLocked(directory, &arena->identity_));
  if (ftruncate(arena->descriptor_, bytes) != 0) {
    return SystemError("set the size of", arena->identity_.path);
  }
  BALLAST_RETURN_IF_ERROR(arena->Map(bytes));
  const absl::Status header_page = arena->EnsureReserved(begin());
  if (!header_page.ok()) return absl::UnavailableError(header_page.message());

  ArenaHeader header = {};
  header.magic = kArenaMagic;
  header.version = kArenaVersion;
  header.bytes = bytes;
  arena->identity_.id.copy(header.id, sizeof(header.id));
  BALLAST_RETURN_IF_ERROR(FillRandom(header.nonce, sizeof(header.nonce)));
  arena->identity_.bytes = bytes;
  arena->identity_.nonce.assign(reinterpret_cast<const char*>(header.nonce),
                                sizeof(header.nonce));
  std::memcpy(arena->base_, &header, sizeof(header));
  return arena;
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::CreatePrivate(uint64_t bytes) {
  std::unique_ptr<Arena> arena(new Arena);
  BALLAST_RETURN_IF_ERROR(
      arena->Map(std::max(bytes / kArenaPage, uint64_t{1}) * kArenaPage));
  return arena;
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, bytes_);
  if (descriptor_ < 0) return;
  // Removes the file before closing the descriptor releases the lock.
  unlink(identity_.path.c_str());
  close(descriptor_);
}

absl::Status Arena::Map(uint64_t bytes) {
  const int flags = descriptor_ < 0
                        ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
                        : MAP_SHARED;
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor_, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("serve.memory: the system maps no ", bytes,
                     " bytes: ", strerror(errno)));
  }
  base_ = static_cast<uint8_t*>(base);
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status Arena::EnsureReserved(uint64_t end) {
  if (descriptor_ < 0) return absl::OkStatus();
  MutexLock lock(&mutex_);
  if (end <= reserved_) return absl::OkStatus();
  uint64_t up_to = std::min(bytes_, std::max(end, reserved_ + kReserveBytes));
  int error = Allocate(descriptor_, reserved_, up_to);
  if (error == ENOSPC && end < up_to) {
    up_to = end;
    error = Allocate(descriptor_, reserved_, up_to);
  }
  if (error != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "arena: cannot take bytes ", reserved_, " to ", up_to, " of ",
        identity_.path, " from the file system: ", strerror(error),
        "; has something else filled it?"));
  }
  reserved_ = up_to;
  return absl::OkStatus();
}

int RemoveStaleArenas(const std::string& directory) {
  const std::string prefix = FilePrefix();
  int removed = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!absl::StartsWith(name, prefix) || !absl::EndsWith(name, kSuffix)) {
      continue;
    }
    const std::string path = entry->path().string();
    const int descriptor =
        open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) continue;
    // The lock is held by a living server.
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 && Names(path, descriptor) &&
        unlink(path.c_str()) == 0) {
      ++removed;
    }
    close(descriptor);
  }
  return removed;
}

absl::StatusOr<std::unique_ptr<Arena>> MakeArena(absl::string_view setting,
                                                 absl::string_view socket,
                                                 uint64_t bytes) {
  if (setting == "off") return Arena::CreatePrivate(bytes);
  if (setting != "auto") {
    absl::StatusOr<std::unique_ptr<Arena>> arena =
        Arena::CreateShared(std::string(setting), bytes);
    if (arena.ok()) return arena;
    const absl::Status status = Annotate(arena.status(), "serve.arena");
    if (!absl::IsUnavailable(status)) return status;
    LogWarning(
        "no shared memory until this server is started again, all "
        "blocks go over the stream: ",
        status.message());
    return Arena::CreatePrivate(bytes);
  }
  std::vector<std::string> directories;
  if (!socket.empty()) {
    const std::string beside =
        std::filesystem::path(std::string(socket)).parent_path().string();
    if (LiesInMemory(beside)) directories.push_back(beside);
  }
  directories.push_back("/dev/shm");
  std::vector<std::string> reasons;
  for (const std::string& directory : directories) {
    absl::StatusOr<std::unique_ptr<Arena>> arena =
        Arena::CreateShared(directory, bytes);
    if (arena.ok()) return arena;
    reasons.emplace_back(arena.status().message());
  }
  LogWarning("no shared memory, all blocks go over the stream: ",
             absl::StrJoin(reasons, "; "));
  return Arena::CreatePrivate(bytes);
}

}  // namespace ballast
