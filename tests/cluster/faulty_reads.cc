// A library to preload into a server: reads of its data fail or hang while a
// file says so.
//
//   BALLAST_READ_FAULT=FILE   one byte: 'e' reads fail with EIO, 't' with ESTALE,
//                             'h' they hang until the byte changes; any other
//                             byte: no fault
//
// Concerns files whose path ends with ".tar", whichever way they are read.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

const volatile char* Fault() {
  static const volatile char* const fault = [] {
    static const char kNone[] = "-";
    const char* const path = getenv("BALLAST_READ_FAULT");
    const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return static_cast<const char*>(kNone);
    void* const byte = mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return byte == MAP_FAILED ? static_cast<const char*>(kNone)
                              : static_cast<const char*>(byte);
  }();
  return fault;
}

bool IsData(int fd) {
  char link[32];
  char path[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof(path));
  return size > 4 && std::memcmp(path + size - 4, ".tar", 4) == 0;
}

// The errno that a read of `fd` fails with, or 0; returns once reads no longer
// hang.
int ErrnoOf(int fd) {
  const char now = *Fault();
  if ((now != 'e' && now != 't' && now != 'h') || !IsData(fd)) return 0;
  while (*Fault() == 'h') usleep(1000);
  return *Fault() == 'e' ? EIO : *Fault() == 't' ? ESTALE : 0;
}

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t pread(int fd, void* out, size_t size, off_t offset) {
  static auto* const real = Real<decltype(pread)>("pread");
  if (const int number = ErrnoOf(fd); number != 0) {
    errno = number;
    return -1;
  }
  return real(fd, out, size, offset);
}

ssize_t pread64(int fd, void* out, size_t size, off_t offset) {
  return pread(fd, out, size, offset);
}

ssize_t preadv2(int fd, const iovec* to, int count, off_t offset, int flags) {
  static auto* const real = Real<decltype(preadv2)>("preadv2");
  // Bytes in memory count as absent, so that no fault is overlooked.
  if ((flags & RWF_NOWAIT) != 0 && *Fault() != '-' && IsData(fd)) {
    errno = EAGAIN;
    return -1;
  }
  if (const int number = ErrnoOf(fd); number != 0) {
    errno = number;
    return -1;
  }
  return real(fd, to, count, offset, flags);
}

ssize_t preadv64v2(int fd, const iovec* to, int count, off_t offset,
                   int flags) {
  return preadv2(fd, to, count, offset, flags);
}

}  // extern "C"
