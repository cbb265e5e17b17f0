#include "server/serve/relay/listen_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net_address.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

absl::Status SystemError(const std::string& path, absl::string_view what) {
  const std::string message =
      absl::StrCat("serve.listen: ", path, ": ", what, ": ", strerror(errno));
  return errno == EACCES || errno == EPERM
             ? absl::PermissionDeniedError(message)
             : absl::UnavailableError(message);
}

absl::Status CannotListen(absl::string_view address, int error) {
  const std::string what =
      absl::StrCat("serve.listen: cannot listen at ", address);
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        what +
        ": Address already in use, by another server or program (`ss -ltnp` "
        "names it); wanted a port that is free: another one, 0 for any, or "
        "unix:PATH");
  }
  return absl::ErrnoToStatus(error, what);
}

absl::StatusOr<sockaddr_un> UnixAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("serve.listen: ", path, " has ", path.size(),
                     " bytes; a Unix socket's path has at most ",
                     sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Checks that no process accepts connections at the socket.
absl::Status CheckNobodyAnswers(const std::string& path,
                                const sockaddr_un& address) {
  const OwnedFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (probe.get() < 0) return SystemError(path, "cannot make a socket");
  const int connected =
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&address),
              sizeof(address));
  const int reason = errno;
  if (connected == 0 || reason == EAGAIN) {  // EAGAIN: its queue is full
    return absl::AlreadyExistsError(
        absl::StrCat("serve.listen: another server answers at unix:", path));
  }
  errno = reason;
  if (reason == ECONNREFUSED || reason == ENOENT) return absl::OkStatus();
  return SystemError(path, "cannot find out whether a server answers");
}

// While this object exists, sockets are created for their owner and group only.
// It affects the whole process, so other files created meanwhile get no more
// permissions than this either.
class SocketMode {
 public:
  static constexpr mode_t kMode = 0660;

  SocketMode() : before_(umask(0777 & ~kMode)) {}
  ~SocketMode() { umask(before_); }
  SocketMode(const SocketMode&) = delete;
  SocketMode& operator=(const SocketMode&) = delete;

 private:
  const mode_t before_;
};

// A socket that listens there. Errors: the system's number.
struct Listening {
  OwnedFd fd;
  int error = 0;
};

Listening ListenAt(const sockaddr* address, socklen_t bytes) {
  Listening made;
  made.fd = OwnedFd(socket(address->sa_family,
                           SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = made.fd.get();
  const int on = 1;
  const int off = 0;
  if (fd >= 0 && address->sa_family != AF_UNIX) {
    // Ignores connections that have ended.
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  if (fd >= 0 && address->sa_family == AF_INET6) {
    // The wildcard is for IPv4, too.
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
    const bool any = IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, any ? &off : &on, sizeof(on));
  }
  if (fd < 0 || bind(fd, address, bytes) != 0 || listen(fd, SOMAXCONN) != 0) {
    made.error = errno;
    made.fd.Reset();
  }
  return made;
}

absl::StatusOr<ListenSockets> ListenAtPath(absl::string_view address,
                                           const std::string& path) {
  BALLAST_RETURN_IF_ERROR(RemoveStaleSocket(path));
  BALLAST_ASSIGN_OR_RETURN(const sockaddr_un at, UnixAddress(path));
  Listening made;
  {
    const SocketMode mode;
    made = ListenAt(reinterpret_cast<const sockaddr*>(&at), sizeof(at));
  }
  if (made.error != 0) return CannotListen(address, made.error);
  // The folder's access control list can have overruled SocketMode.
  if (chmod(path.c_str(), SocketMode::kMode) != 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("serve.listen: ", path, ": cannot chmod"));
  }
  ListenSockets result;
  result.address = std::string(address);
  result.sockets.push_back(std::move(made.fd));
  std::memcpy(&result.first, &at, sizeof(at));
  result.first_bytes = sizeof(at);
  struct stat found = {};
  if (stat(path.c_str(), &found) == 0) result.inode = found.st_ino;
  return result;
}

void SetPort(uint16_t port, sockaddr_storage* address) {
  if (address->ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  }
}

uint16_t GetPort(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

bool IsWildcard(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6
             ? IN6_IS_ADDR_UNSPECIFIED(
                   &reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr)
             : reinterpret_cast<const sockaddr_in*>(&address)
                       ->sin_addr.s_addr == htonl(INADDR_ANY);
}

// The addresses of a host; a wildcard is that of IPv6, if there is IPv6.
absl::StatusOr<std::vector<sockaddr_storage>> Resolve(
    absl::string_view address, const NetAddress& parsed) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(
      parsed.host.c_str(), absl::StrCat(parsed.port).c_str(), &hints, &found);
  if (failed != 0) {
    return absl::NotFoundError(absl::StrCat("serve.listen: cannot listen at ",
                                            address, ": host ", parsed.host,
                                            ": ", gai_strerror(failed)));
  }
  std::vector<sockaddr_storage> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    sockaddr_storage& next = addresses.emplace_back();
    std::memcpy(&next, one->ai_addr, one->ai_addrlen);
    if (next.ss_family == AF_INET && IsWildcard(next)) {
      sockaddr_in6 any = {};
      any.sin6_family = AF_INET6;
      sockaddr_storage both = {};
      std::memcpy(&both, &any, sizeof(any));
      SetPort(parsed.port, &both);
      addresses.insert(addresses.end() - 1, both);
    }
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

absl::StatusOr<ListenSockets> OpenListenSockets(absl::string_view address) {
  absl::StatusOr<NetAddress> parsed = ParseNetAddress(address);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("serve.listen: found \"", address, "\"; ",
                     std::string(parsed.status().message())));
  }
  if (parsed->is_unix()) return ListenAtPath(address, parsed->path);
  BALLAST_ASSIGN_OR_RETURN(std::vector<sockaddr_storage> addresses,
                           Resolve(address, *parsed));
  ListenSockets result;
  absl::Status first_error;
  uint16_t port = parsed->port;
  for (sockaddr_storage& at : addresses) {
    SetPort(port, &at);
    Listening made = ListenAt(
        reinterpret_cast<const sockaddr*>(&at),
        at.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    if (made.error != 0) {
      first_error.Update(CannotListen(address, made.error));
      continue;
    }
    if (result.sockets.empty()) {
      result.first_bytes = sizeof(result.first);
      getsockname(made.fd.get(), reinterpret_cast<sockaddr*>(&result.first),
                  &result.first_bytes);
      port = GetPort(result.first);
    }
    result.sockets.push_back(std::move(made.fd));
    // For both kinds of addresses.
    if (at.ss_family == AF_INET6 && IsWildcard(at)) break;
  }
  if (result.sockets.empty()) return first_error;
  result.address =
      absl::StrCat(address.substr(0, address.rfind(':') + 1), port);
  return result;
}

void ListenSockets::RemoveFile() const {
  const std::string path(UnixPath(address));
  struct stat found = {};
  if (!path.empty() && lstat(path.c_str(), &found) == 0 &&
      found.st_ino == inode) {
    unlink(path.c_str());
  }
}

absl::Status RemoveStaleSocket(const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  struct stat found;
  if (lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : SystemError(path, "cannot be looked at");
  }
  if (!S_ISSOCK(found.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat("serve.listen: ", path, " exists and is not a socket"));
  }
  BALLAST_RETURN_IF_ERROR(CheckNobodyAnswers(path, address));
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return SystemError(path, "cannot remove the stale socket");
  }
  return absl::OkStatus();
}

absl::StatusOr<OwnedFd> ConnectTo(const ListenSockets& sockets) {
  sockaddr_storage to = sockets.first;
  if (!sockets.is_unix() && IsWildcard(to)) {
    if (to.ss_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(&to)->sin6_addr = in6addr_loopback;
    } else {
      reinterpret_cast<sockaddr_in*>(&to)->sin_addr.s_addr =
          htonl(INADDR_LOOPBACK);
    }
  }
  OwnedFd fd(
      socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return absl::UnavailableError(strerror(errno));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to),
              sockets.first_bytes) == 0 ||
      errno == EINPROGRESS) {
    return fd;
  }
  return errno == ECONNREFUSED || errno == ENOENT
             ? absl::NotFoundError(strerror(errno))
             : absl::UnavailableError(strerror(errno));
}

NumericAddress ToNumeric(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  NumericAddress numeric;
  const uint16_t port = GetPort(address);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (address.ss_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&v6)) {
    const void* const four =
        address.ss_family == AF_INET
            ? static_cast<const void*>(
                  &reinterpret_cast<const sockaddr_in&>(address).sin_addr)
            : v6.s6_addr + 12;
    inet_ntop(AF_INET, four, text, sizeof(text));
    numeric.text = absl::StrCat(text, ":", port);
    numeric.peer_key = text;
    return numeric;
  }
  numeric.is_v6 = true;
  inet_ntop(AF_INET6, &v6, text, sizeof(text));
  numeric.text = absl::StrCat("[", text, "]:", port);
  in6_addr net = v6;
  std::fill(net.s6_addr + 8, net.s6_addr + 16, uint8_t{0});
  inet_ntop(AF_INET6, &net, text, sizeof(text));
  numeric.peer_key = absl::StrCat(text, "/64");
  return numeric;
}

}  // namespace ballast
