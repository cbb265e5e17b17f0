#include "server/service/page_server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "server/config/exposure.h"
#include "server/http/pages.h"
#include "server/http/prometheus_text.h"
#include "server/http/status_json.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<HttpServer>> StartPageServer(
    const v1::Config& config, const PageSubjects& subjects) {
  const std::string& address = config.serve().http();
  if (address.empty()) return nullptr;
  BALLAST_ASSIGN_OR_RETURN(const NetAddress parsed,
                           ParseConfiguredAddress(address));
  PageSources pages;
  pages.is_local = parsed.IsLocal();
  pages.metrics = [state = subjects.state] {
    return PrometheusText(state->Metrics());
  };
  pages.status = [state = subjects.state, balance = subjects.balance] {
    return PageJson(state->Status(), state->Metrics(), balance->Current().get(),
                    balance->History());
  };
  pages.history = [state = subjects.state,
                   history = subjects.history](absl::Duration range) {
    return HistoryJson(state->name(), *history, range);
  };
  pages.compared = [compared = subjects.compared](size_t server,
                                                  absl::Duration range) {
    return compared->Json(server, range);
  };
  pages.check = [security = subjects.security](
                    const std::optional<std::string>& authorization) {
    return security->CheckAuthorization(authorization);
  };
  absl::StatusOr<std::unique_ptr<HttpServer>> http = HttpServer::Start(
      address, MakePages(std::move(pages)), subjects.security->tls());
  if (!http.ok()) return Annotate(http.status(), "serve.http");
  const std::string url =
      absl::StrCat((*http)->scheme(), "://", (*http)->address());
  LogInfo("page at ", url, "/, metrics at ", url, "/metrics");
  return http;
}

namespace {

absl::Status SystemError(const std::string& path, absl::string_view what) {
  const std::string message =
      absl::StrCat("serve.listen: ", path, ": ", what, ": ", strerror(errno));
  return errno == EACCES || errno == EPERM
             ? absl::PermissionDeniedError(message)
             : absl::UnavailableError(message);
}

// Checks that no process accepts connections at the socket.
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

absl::StatusOr<NetAddress> Parse(absl::string_view address) {
  absl::StatusOr<NetAddress> parsed = ParseNetAddress(address);
  if (parsed.ok()) return parsed;
  return absl::InvalidArgumentError(
      absl::StrCat("serve.listen: found \"", address, "\"; ",
                   std::string(parsed.status().message())));
}

absl::Status TooLong(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat("serve.listen: ", path, " has ", path.size(),
                   " bytes; a Unix socket's path has at most ",
                   sizeof(sockaddr_un::sun_path) - 1));
}

// The system's status for an attempt to listen there with a socket of our own.
absl::Status TryBind(absl::string_view address, int family,
                     const sockaddr* name, socklen_t length) {
  const auto error = [address](int number) {
    const std::string what =
        absl::StrCat("serve.listen: cannot listen at ", address);
    if (number == EADDRINUSE) {
      return absl::AlreadyExistsError(
          what + ": Address already in use; by another server?");
    }
    return absl::ErrnoToStatus(number, what);
  };
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return error(errno);
  // Ignores connections that have ended, as gRPC does.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  absl::Status status;
  if (bind(fd, name, length) != 0 || listen(fd, 1) != 0) status = error(errno);
  close(fd);
  return status;
}

}  // namespace

absl::Status CheckListen(absl::string_view address,
                         const v1::Security& security) {
  BALLAST_ASSIGN_OR_RETURN(const NetAddress parsed, Parse(address));
  return Annotate(CheckExposure(parsed, address, security), "serve.listen");
}

absl::Status TryListen(absl::string_view address) {
  BALLAST_ASSIGN_OR_RETURN(const NetAddress parsed, Parse(address));
  if (parsed.is_unix()) {
    const std::string& path = parsed.path;
    sockaddr_un unix_address = {};
    unix_address.sun_family = AF_UNIX;
    std::memcpy(unix_address.sun_path, path.data(), path.size());
    absl::Status status = TryBind(
        address, AF_UNIX, reinterpret_cast<const sockaddr*>(&unix_address),
        sizeof(unix_address));
    if (status.ok()) unlink(path.c_str());
    return status;
  }
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
  absl::Status first;
  bool can = false;
  for (const addrinfo* one = found; one != nullptr && !can;
       one = one->ai_next) {
    const absl::Status status =
        TryBind(address, one->ai_family, one->ai_addr, one->ai_addrlen);
    can = status.ok();
    first.Update(status);
  }
  freeaddrinfo(found);
  return can ? absl::OkStatus() : first;
}

absl::Status RemoveStaleSocket(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return TooLong(path);
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
