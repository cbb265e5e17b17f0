#include "server/service/call_server.h"

#include <sys/stat.h>

#include <cerrno>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include "absl/strings/str_cat.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "server/service/call_limits.h"
#include "server/service/listening.h"

namespace ballast {
namespace {

// While this object exists, sockets are created for their owner and group only.
// It affects the whole process, so other files created meanwhile get no more
// permissions than these.
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
