#include "client/arena_mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace ballast {
namespace {

absl::Status OpenError(const std::string& path) {
  const int error = errno;
  const std::string message =
      absl::StrCat("cannot open ", path, ": ", strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat(
          message,
          " (the server is on another machine, or its directory is not mounted "
          "here at the same path: see serve.arena)"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(message, " (wanted: the server's user, or its group)"));
  }
  return absl::UnavailableError(message);
}

absl::Status SomethingElse(const std::string& path, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is not the server's arena: ", what,
                   " (is the server on another machine?)"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ArenaMapping>> ArenaMapping::Open(
    const std::string& path, uint64_t bytes, const std::string& id) {
  // Checked before opening: opening some devices has effects.
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) return OpenError(path);
  if (!S_ISREG(file.st_mode)) return SomethingElse(path, "it is no file");
  const int descriptor =
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return OpenError(path);
  const absl::Cleanup close_it = [descriptor] { close(descriptor); };
  if (fstat(descriptor, &file) != 0) return OpenError(path);
  if (!S_ISREG(file.st_mode) || file.st_size < 0 ||
      static_cast<uint64_t>(file.st_size) != bytes || bytes < kArenaPage) {
    return SomethingElse(
        path, absl::StrCat("it has ", file.st_size, " bytes, wanted ", bytes));
  }
  void* base =
      mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, /*offset=*/0);
  if (base == MAP_FAILED) {
    return absl::UnavailableError(
        absl::StrCat("cannot map ", path, ": ", strerror(errno)));
  }
  std::shared_ptr<ArenaMapping> mapping(new ArenaMapping);
  mapping->base_ = static_cast<const uint8_t*>(base);
  mapping->bytes_ = bytes;
  ArenaHeader header;
  std::memcpy(&header, base, sizeof(header));
  mapping->id_.assign(header.id, sizeof(header.id));
  mapping->nonce_.assign(reinterpret_cast<const char*>(header.nonce),
                         sizeof(header.nonce));
  if (header.magic != kArenaMagic || header.version != kArenaVersion ||
      header.bytes != bytes) {
    return SomethingElse(path, "its header is no arena's of this version");
  }
  if (mapping->id_ != id) return SomethingElse(path, "it has another id");
  return mapping;
}

ArenaMapping::~ArenaMapping() {
  if (base_ != nullptr) munmap(const_cast<uint8_t*>(base_), bytes_);
}

absl::StatusOr<absl::Span<const uint8_t>> ArenaMapping::Block(
    uint64_t offset, uint64_t bytes) const {
  if (offset % kArenaStampBytes != 0 || offset > bytes_ ||
      offset < kArenaPage + kArenaStampBytes || bytes == 0 ||
      bytes > bytes_ - offset) {
    return absl::InternalError(absl::StrCat("the server placed ", bytes,
                                            " bytes at ", offset,
                                            " of an arena of ", bytes_));
  }
  return this->bytes().subspan(offset, bytes);
}

std::shared_ptr<const ArenaMapping> ArenaCache::Get(const std::string& server,
                                                    const std::string& path,
                                                    uint64_t bytes,
                                                    const std::string& id) {
  MutexLock lock(&mutex_);
  std::shared_ptr<const ArenaMapping> mapping = mapping_.lock();
  if (mapping != nullptr && mapping->id() == id) return mapping;
  absl::StatusOr<std::shared_ptr<const ArenaMapping>> opened =
      ArenaMapping::Open(path, bytes, id);
  if (opened.ok()) {
    mapping_ = *opened;
    return *std::move(opened);
  }
  if (std::exchange(failed_id_, id) != id) {
    LogInfo(server, ": blocks come over the stream and not in shared memory: ",
            opened.status().message());
  }
  return nullptr;
}

}  // namespace ballast
