#include "tests/fuzz/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace ballast {

std::string MemoryFile(absl::string_view bytes) {
  static const int descriptor = memfd_create("fuzz", MFD_CLOEXEC);
  if (descriptor < 0 || ftruncate(descriptor, 0) != 0 ||
      pwrite(descriptor, bytes.data(), bytes.size(), 0) !=
          static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  return absl::StrCat("/proc/self/fd/", descriptor);
}

}  // namespace ballast
