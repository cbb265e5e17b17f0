#include "common/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// The value of `name` as a whole number above 0; 0 otherwise.
uint64_t NumberFromEnvironment(const char* name) {
  const char* const text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : 0;
}

}  // namespace

void NotifyServiceManager(absl::string_view state) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, path, length);
  // A leading @ denotes the abstract namespace.
  if (path[0] == '@') address.sun_path[0] = '\0';
  const int socket_fd =
      socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_fd < 0) return;
  [[maybe_unused]] const ssize_t sent =
      sendto(socket_fd, state.data(), state.size(), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&address),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
  close(socket_fd);
}

void NotifyReloading() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  NotifyServiceManager(
      absl::StrCat("RELOADING=1\nMONOTONIC_USEC=",
                   absl::ToInt64Microseconds(absl::DurationFromTimespec(now))));
}

std::optional<absl::Duration> WatchdogTimeout() {
  const uint64_t microseconds = NumberFromEnvironment("WATCHDOG_USEC");
  if (microseconds == 0) return std::nullopt;
  if (std::getenv("WATCHDOG_PID") != nullptr &&
      NumberFromEnvironment("WATCHDOG_PID") !=
          static_cast<uint64_t>(getpid())) {
    return std::nullopt;
  }
  return absl::Microseconds(static_cast<int64_t>(microseconds));
}

}  // namespace ballast
