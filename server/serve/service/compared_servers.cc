#include "server/serve/service/compared_servers.h"

#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "proto/metrics_service.grpc.pb.h"
#include "server/serve/http/pages.h"
#include "server/serve/service/peer_check.h"

namespace ballast {
namespace {

constexpr int kMaxColumns = 64;
constexpr size_t kMaxName = 512;

absl::Status Strange(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("its answer cannot be drawn: ", what));
}

}  // namespace

absl::Status CheckHistory(const v1::GetHistoryResponse& history) {
  if (history.seconds_size() > static_cast<int>(kMaxPoints)) {
    return Strange(absl::StrCat(history.seconds_size(), " points, wanted ",
                                kMaxPoints, " at most"));
  }
  if (history.columns_size() > kMaxColumns) {
    return Strange(absl::StrCat(history.columns_size(), " columns, wanted ",
                                kMaxColumns, " at most"));
  }
  if (history.server().size() > kMaxName || !std::isfinite(history.start())) {
    return Strange("a server without a name or a start");
  }
  for (int i = 0; i < history.seconds_size(); ++i) {
    const double at = history.seconds(i);
    if (!std::isfinite(at) || (i > 0 && at <= history.seconds(i - 1))) {
      return Strange("times that do not ascend");
    }
  }
  for (const auto& column : history.columns()) {
    if (column.name().empty() || column.name().size() > kMaxName ||
        column.values_size() != history.seconds_size()) {
      return Strange(
          "a column without a name, or not of one value for each "
          "time");
    }
  }
  return absl::OkStatus();
}

ComparedServers::ComparedServers(std::vector<std::string> addresses, Call call,
                                 Clock* clock)
    : call_(std::move(call)), clock_(clock) {
  for (std::string& address : addresses) {
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->address = std::move(address);
  }
}

void ComparedServers::Ask(Peer* peer, absl::Duration range) const {
  {
    MutexLock lock(&peer->mutex);
    const bool fresh =
        peer->range == range && clock_->Now() - peer->asked < kKeep;
    if (peer->calling || fresh) return;
    peer->calling = true;
  }
  absl::StatusOr<v1::GetHistoryResponse> answer =
      call_(peer->address, static_cast<uint32_t>(absl::ToInt64Seconds(range)));
  absl::Status status = answer.status();
  if (status.ok()) status = CheckHistory(*answer);
  std::string history;
  if (status.ok()) history = HistoryJson(*answer);
  MutexLock lock(&peer->mutex);
  peer->calling = false;
  peer->range = range;
  peer->asked = clock_->Now();
  peer->error = std::string(status.message());
  if (!status.ok()) return;
  peer->fetched = peer->asked;
  peer->history = std::move(history);
}

std::string ComparedServers::Json(size_t server, absl::Duration range) {
  nlohmann::ordered_json addresses = nlohmann::ordered_json::array();
  for (const auto& peer : peers_) addresses.push_back(peer->address);
  std::string history = "null";
  nlohmann::ordered_json age;
  std::string error;
  if (server < peers_.size()) {
    Peer* const peer = peers_[server].get();
    Ask(peer, range);
    MutexLock lock(&peer->mutex);
    error = peer->error;
    if (!peer->history.empty()) {
      history = peer->history;
      age = absl::ToDoubleSeconds(clock_->Now() - peer->fetched);
    }
  } else if (!peers_.empty()) {
    error = absl::StrCat("serve.compare_with has ", peers_.size(),
                         " entries; wanted the number of one, from 0");
  }
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  return absl::StrCat(
      "{\"addresses\":", addresses.dump(-1, ' ', false, kReplace),
      ",\"history\":", history, ",\"age\":", age.dump(), ",\"error\":",
      nlohmann::ordered_json(error).dump(-1, ' ', false, kReplace), "}");
}

namespace {

constexpr std::chrono::seconds kDeadline(2);
constexpr int kMaxBytes = 1 << 20;

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

ComparedServers::Call GrpcHistoryCall(PeerSecurity security) {
  return [security = std::move(security)](
             const std::string& address,
             uint32_t seconds) -> absl::StatusOr<v1::GetHistoryResponse> {
    BALLAST_ASSIGN_OR_RETURN(const auto channel,
                             MakePeerChannel(address, security(), kMaxBytes));
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
