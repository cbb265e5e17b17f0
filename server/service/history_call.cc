#include "server/service/history_call.h"

#include <chrono>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "proto/metrics_service.grpc.pb.h"
#include "server/service/peer_channel.h"

namespace ballast {
namespace {

constexpr std::chrono::seconds kDeadline(2);
constexpr int kMostBytes = 1 << 20;

absl::string_view Advice(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnimplemented:
      return "; is it a server of Ballast, and of this version?";
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return "; it is called with this server's certificate and token, which "
             "it must accept";
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return "; is it up, and does it listen there?";
    default:
      return "";
  }
}

}  // namespace

ComparedServers::Call GrpcHistoryCall(ChannelSecurity security) {
  return [security = std::move(security)](
             const std::string& address,
             uint32_t seconds) -> absl::StatusOr<v1::GetHistoryResponse> {
    BALLAST_ASSIGN_OR_RETURN(const auto channel,
                             MakePeerChannel(address, security, kMostBytes));
    const auto stub = v1::MetricsService::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    v1::GetHistoryRequest request;
    request.set_seconds(seconds);
    v1::GetHistoryResponse response;
    const absl::Status status =
        FromGrpcStatus(stub->GetHistory(&context, request, &response));
    if (status.ok()) return response;
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), Advice(status.code())));
  };
}

}  // namespace ballast
