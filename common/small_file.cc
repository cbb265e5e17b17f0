#include "common/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ballast {

namespace {

absl::StatusOr<std::string> ReadAll(int descriptor, const std::string& path,
                                    size_t most) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot stat"));
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a regular file"));
  }
  std::string bytes;
  char buffer[4096];
  while (bytes.size() <= most) {
    const ssize_t count = read(descriptor, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot read"));
    }
    if (count == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(count));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": over ", most, " bytes, which is the most"));
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path,
                                          size_t most) {
  // O_NONBLOCK: opens a pipe (and then refuses it) without waiting for a
  // writer. It has no effect on regular files.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  }
  absl::StatusOr<std::string> bytes = ReadAll(descriptor, path, most);
  close(descriptor);
  return bytes;
}

bool AnyoneMayRead(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0;
}

}  // namespace ballast
