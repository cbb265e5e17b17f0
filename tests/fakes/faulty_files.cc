#include "tests/fakes/faulty_files.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdarg>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "common/mutex.h"

namespace ballast {
namespace {

struct Faults {
  Mutex mutex;
  std::string path ABSL_GUARDED_BY(mutex);
  int number ABSL_GUARDED_BY(mutex) = 0;
  uint64_t left ABSL_GUARDED_BY(mutex) = 0;
  std::set<int> stale ABSL_GUARDED_BY(mutex);  // descriptors
  uint64_t failed ABSL_GUARDED_BY(mutex) = 0;
};

Faults& TheFaults() {
  static Faults* const faults = new Faults;
  return *faults;
}

std::string GetPath(int descriptor) {
  std::error_code ignored;
  return std::filesystem::read_symlink(
             "/proc/self/fd/" + std::to_string(descriptor), ignored)
      .string();
}

// The errno that a read of `descriptor` fails with, or 0. A read from memory
// (`peeks`) does not use up a fault.
int ErrnoOf(int descriptor, bool peeks) {
  Faults& faults = TheFaults();
  MutexLock lock(&faults.mutex);
  if (faults.stale.count(descriptor) != 0) {
    faults.failed += !peeks;
    return ESTALE;
  }
  if (faults.left == 0 ||
      !absl::StrContains(GetPath(descriptor), faults.path)) {
    return 0;
  }
  if (!peeks) {
    --faults.left;
    ++faults.failed;
  }
  return faults.number;
}

// A descriptor number that is opened again is another handle.
int Opened(int descriptor) {
  Faults& faults = TheFaults();
  MutexLock lock(&faults.mutex);
  faults.stale.erase(descriptor);
  return descriptor;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

ssize_t ReadOrFail(int descriptor, void* out, size_t size, off_t offset) {
  static const auto next = Next<ssize_t(int, void*, size_t, off_t)>("pread");
  errno = ErrnoOf(descriptor, /*peeks=*/false);
  return errno != 0 ? -1 : next(descriptor, out, size, offset);
}

}  // namespace

void FailReads(const std::string& path, int number, uint64_t times) {
  Faults& faults = TheFaults();
  MutexLock lock(&faults.mutex);
  faults.path = path;
  faults.number = number;
  faults.left = times;
}

void MakeHandlesStale(const std::string& path) {
  std::set<int> stale;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    if (absl::StrContains(GetPath(descriptor), path)) stale.insert(descriptor);
  }
  Faults& faults = TheFaults();
  MutexLock lock(&faults.mutex);
  faults.stale = stale;
}

uint64_t FailedReads() {
  Faults& faults = TheFaults();
  MutexLock lock(&faults.mutex);
  return faults.failed;
}

void HealFiles() {
  Faults& faults = TheFaults();
  MutexLock lock(&faults.mutex);
  faults.left = 0;
  faults.stale.clear();
}

}  // namespace ballast

extern "C" {

ssize_t pread(int descriptor, void* out, size_t size, off_t offset) {
  return ballast::ReadOrFail(descriptor, out, size, offset);
}

ssize_t pread64(int descriptor, void* out, size_t size, off64_t offset) {
  return ballast::ReadOrFail(descriptor, out, size, offset);
}

ssize_t preadv2(int descriptor, const struct iovec* to, int count, off_t offset,
                int flags) {
  static const auto next =
      ballast::Next<ssize_t(int, const iovec*, int, off_t, int)>("preadv2");
  errno = ballast::ErrnoOf(descriptor, /*peeks=*/true);
  return errno != 0 ? -1 : next(descriptor, to, count, offset, flags);
}

int open(const char* path, int flags, ...) {
  static const auto next = ballast::Next<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return ballast::Opened(next(path, flags, mode));
}

}  // extern "C"
