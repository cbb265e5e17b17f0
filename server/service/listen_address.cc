#include "server/service/listen_address.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ballast {
namespace {

absl::Status SystemError(const std::string& path, absl::string_view what) {
  const std::string message =
      absl::StrCat("serve.listen: ", path, ": ", what, ": ", strerror(errno));
  return errno == EACCES || errno == EPERM
             ? absl::PermissionDeniedError(message)
             : absl::UnavailableError(message);
}

// Whether somebody accepts connections at the socket.
absl::Status CheckNobodyAnswers(const std::string& path,
                                const sockaddr_un& address) {
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return SystemError(path, "cannot make a socket");
  const int connected = connect(
      probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int reason = errno;
  close(probe);
  if (connected == 0 || reason == EAGAIN) {  // EAGAIN: its queue is full
    return absl::AlreadyExistsError(
        absl::StrCat("serve.listen: another server answers at unix:", path));
  }
  errno = reason;
  if (reason == ECONNREFUSED || reason == ENOENT) return absl::OkStatus();
  return SystemError(path, "cannot tell whether a server answers");
}

}  // namespace

absl::string_view UnixPath(absl::string_view address) {
  if (!absl::ConsumePrefix(&address, "unix:")) return "";
  // unix:///path is the same file as unix:/path.
  if (absl::StartsWith(address, "///")) address.remove_prefix(2);
  return address;
}

absl::Status CheckLocalAddress(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) {
    if (!UnixPath(address).empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("serve.listen: ", address, " has no path"));
  }
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("serve.listen: \"", address,
                     "\" is no address; wanted unix:/path or host:port"));
  }
  const absl::string_view host = address.substr(0, colon);
  if (host == "localhost" || host == "[::1]" ||
      absl::StartsWith(host, "127.")) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      "serve.listen: ", address,
      " can be reached from other machines, which "
      "needs security.tls, and that is not built yet; listen at a Unix socket "
      "or 127.0.0.1"));
}

absl::Status RemoveStaleSocket(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("serve.listen: ", path, " has ", path.size(),
                     " bytes; a Unix socket's path has at most ",
                     sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());

  struct stat found;
  if (lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : SystemError(path, "cannot be looked at");
  }
  if (!S_ISSOCK(found.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat("serve.listen: ", path, " exists and is not a socket"));
  }
  const absl::Status silent = CheckNobodyAnswers(path, address);
  if (!silent.ok()) return silent;
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return SystemError(path, "cannot remove the socket that was left behind");
  }
  return absl::OkStatus();
}

std::string WithPort(absl::string_view address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':') + 1), port);
}

}  // namespace ballast
