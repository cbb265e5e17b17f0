#include "server/serve/service/listening.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "proto/transport.h"
#include "server/config/config_validate.h"
#include "server/serve/http/pages.h"

namespace ballast {
namespace {

// An event that any thread sets and one thread awaits.
class Signal {
 public:
  void Set() {
    MutexLock lock(&mutex_);
    set_ = true;
    changed_.NotifyAll();
  }
  void AwaitAndClear() {
    MutexLock lock(&mutex_);
    while (!set_) changed_.Wait(&mutex_);
    set_ = false;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::Status BuildFirst(Loader* loader, const v1::Role& role) {
  // Shared, since the stream may call after it has been closed here.
  const auto news = std::make_shared<Signal>();
  auto stream = loader->OpenStream(role, 0, 0, 1, [news] { news->Set(); });
  if (absl::IsOutOfRange(stream.status())) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(stream.status());
  while (true) {
    auto block = (*stream)->TryNext();
    if (block.has_value()) return block->status();
    news->AwaitAndClear();
  }
}

}  // namespace

std::vector<v1::Role> RolesToRehearse(const std::vector<v1::Role>& first_ranks,
                                      const v1::Job& job) {
  std::vector<v1::Role> roles = first_ranks;
  for (const int split : job.splits()) {
    if (split == v1::SPLIT_TRAIN) continue;
    for (v1::Role role : first_ranks) {
      role.set_split(static_cast<v1::Split>(split));
      roles.push_back(std::move(role));
    }
  }
  return roles;
}

absl::Status Rehearse(Loader* loader, const std::vector<v1::Role>& roles) {
  for (const v1::Role& role : roles) {
    BALLAST_RETURN_IF_ERROR(Annotate(
        BuildFirst(loader, role),
        absl::StrCat("cannot build the first block of ",
                     SplitWord(role.split()), ModuleName(role.module()),
                     " rank ", role.dp_rank())));
  }
  return absl::OkStatus();
}

namespace {

// Requests are small; the largest is an Attach with every entry of a
// fingerprint.
constexpr int kMaxRequestBytes = 4 << 20;
// A client opens a few streams on a connection; thousands indicate a fault.
constexpr int kMaxCallsPerConnection = 1024;
constexpr int kHandshakeTimeoutMs = 20'000;
// A token has up to 4096 bytes.
constexpr int kMaxMetadataBytes = 16 << 10;

// Limits what clients may send and how many calls they open, and sets when a
// connection that is silent counts as lost.
void SetCallLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  // A schedule of a large job has tens of megabytes.
  builder->SetMaxSendMessageSize(-1);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              kMaxCallsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      kMinPingIntervalMs);
  // A client that connects and stays silent is dropped.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              kHandshakeTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // Two servers at one port would each get only some of the clients.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
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

}  // namespace

absl::StatusOr<CallServer> StartCallServer(
    const v1::Serve& serve, const ServerSecurity& security,
    absl::Span<grpc::Service* const> services) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetCallLimits(&builder);
  const auto& listen = serve.listen();
  for (const std::string& address : listen) {
    const std::string path(UnixPath(address));
    // gRPC would delete the socket of a running server.
    if (!path.empty()) BALLAST_RETURN_IF_ERROR(RemoveStaleSocket(path));
    // gRPC reports only that it cannot listen, and logs the reason.
    BALLAST_RETURN_IF_ERROR(TryListen(address));
  }
  std::vector<int> ports(listen.size(), 0);  // filled in by BuildAndStart
  for (int i = 0; i < listen.size(); ++i) {
    builder.AddListeningPort(listen[i], security.CredentialsFor(listen[i]),
                             &ports[i]);
  }
  for (grpc::Service* const service : services) {
    builder.RegisterService(service);
  }
  CallServer started;
  {
    const SocketMode mode;
    started.server = builder.BuildAndStart();
  }
  for (int i = 0; i < listen.size(); ++i) {
    if (ports[i] != 0) continue;
    BALLAST_RETURN_IF_ERROR(TryListen(listen[i]));
    return absl::UnavailableError(
        absl::StrCat("serve.listen: gRPC cannot listen at ", listen[i]));
  }
  if (started.server == nullptr) {
    return absl::UnavailableError("serve.listen: gRPC cannot start a server");
  }
  for (int i = 0; i < listen.size(); ++i) {
    const std::string path(UnixPath(listen[i]));
    started.addresses.push_back(path.empty() ? WithPort(listen[i], ports[i])
                                             : listen[i]);
    // The folder's access control list can have overruled SocketMode.
    if (!path.empty() && chmod(path.c_str(), SocketMode::kMode) != 0) {
      return absl::ErrnoToStatus(
          errno, absl::StrCat("serve.listen: ", path, ": cannot chmod"));
    }
  }
  return started;
}

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
  return SystemError(path, "cannot find out whether a server answers");
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
    return SystemError(path, "cannot remove the stale socket");
  }
  return absl::OkStatus();
}

std::string WithPort(absl::string_view address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':') + 1), port);
}

}  // namespace ballast
