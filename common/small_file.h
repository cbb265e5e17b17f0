#ifndef BALLAST_COMMON_SMALL_FILE_H_
#define BALLAST_COMMON_SMALL_FILE_H_

#include <unistd.h>

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace ballast {

// Reads a regular file of at most `most` bytes: a key, a certificate, a list of
// tokens. Never waits for a pipe. Blocks on the disk. Errors begin with the
// path: NOT_FOUND, PERMISSION_DENIED and others of the disk; INVALID_ARGUMENT
// (not a regular file, too large).
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t most);

// Whether every user of the machine may read the file; false if it is missing.
bool AnyoneMayRead(const std::string& path);

// Owns a file descriptor. Movable; thread-compatible.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() { Reset(); }
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.Release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = other.Release();
    }
    return *this;
  }

  // -1: none.
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_SMALL_FILE_H_
