#ifndef BALLAST_COMMON_OWNED_FD_H_
#define BALLAST_COMMON_OWNED_FD_H_

#include <unistd.h>

#include <utility>

namespace ballast {

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

#endif  // BALLAST_COMMON_OWNED_FD_H_
