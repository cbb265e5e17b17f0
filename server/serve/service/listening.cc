#include "server/serve/service/listening.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/machine.h"
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
// Of the machine's cores, what the frames of one peer may keep busy, and what
// it may do at once.
constexpr double kPeersShare = 0.125;
constexpr absl::Duration kPeersBurst = absl::Milliseconds(500);
constexpr size_t kMaxCallsPerPeer = 4096;
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
}

}  // namespace

absl::StatusOr<std::vector<ListenSockets>> OpenAllSockets(
    const v1::Serve& serve) {
  std::vector<ListenSockets> sockets;
  for (const std::string& address : serve.listen()) {
    BALLAST_ASSIGN_OR_RETURN(sockets.emplace_back(),
                             OpenListenSockets(address));
  }
  return sockets;
}

absl::StatusOr<CallServer> StartCallServer(
    std::vector<ListenSockets> sockets, const ServerSecurity& security,
    absl::Span<grpc::Service* const> services,
    std::shared_ptr<ConnectionPlaces> places,
    std::function<void(const absl::Status&)> on_lost) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetCallLimits(&builder);
  CallServer started;
  using External =
      grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  started.acceptor = builder.experimental().AddExternalConnectionAcceptor(
      External::FROM_FD, security.Credentials());
  for (grpc::Service* const service : services) {
    builder.RegisterService(service);
  }
  started.server = builder.BuildAndStart();
  if (started.server == nullptr) {
    return absl::UnavailableError("serve.listen: gRPC cannot start a server");
  }
  Relay::Settings settings;
  settings.tls = security.tls();
  settings.places = std::move(places);
  settings.budgets =
      std::make_shared<WorkBudgets>(Cores() * kPeersShare, kPeersBurst);
  settings.calls = std::make_shared<OpenCalls>(kMaxCallsPerPeer);
  settings.pass = [acceptor = started.acceptor.get()](OwnedFd end) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
        connection;
    connection.fd = end.Release();
    acceptor->HandleNewConnection(&connection);
  };
  settings.on_lost = std::move(on_lost);
  for (ListenSockets& one : sockets) {
    started.addresses.push_back(one.address);
    BALLAST_ASSIGN_OR_RETURN(started.relays.emplace_back(),
                             Relay::Start(std::move(one), settings));
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

absl::StatusOr<NetAddress> Parse(absl::string_view address) {
  absl::StatusOr<NetAddress> parsed = ParseNetAddress(address);
  if (parsed.ok()) return parsed;
  return absl::InvalidArgumentError(
      absl::StrCat("serve.listen: found \"", address, "\"; ",
                   std::string(parsed.status().message())));
}

}  // namespace

absl::Status CheckListen(absl::string_view address,
                         const v1::Security& security) {
  BALLAST_ASSIGN_OR_RETURN(const NetAddress parsed, Parse(address));
  return Annotate(CheckExposure(parsed, address, security), "serve.listen");
}

}  // namespace ballast
