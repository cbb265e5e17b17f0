#include "server/service/call_server.h"

#include <sys/stat.h>

#include <cerrno>

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "proto/transport.h"
#include "server/service/page_server.h"

namespace ballast {
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

}  // namespace ballast
