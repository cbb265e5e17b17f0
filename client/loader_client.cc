#include "client/loader_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"
#include "client/arena_mapping.h"
#include "client/buffer_pool.h"
#include "client/grpc_batch_fetcher.h"
#include "client/server_address.h"
#include "client/tls_diagnosis.h"
#include "common/grpc_status.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "proto/health.grpc.pb.h"
#include "proto/loader_service.grpc.pb.h"
#include "proto/metrics_service.grpc.pb.h"
#include "proto/schedule_service.grpc.pb.h"
#include "proto/transport.h"

namespace ballast {
namespace {

// Answers come at once; so long is waited for a server that is not there.
constexpr absl::Duration kDeadline = absl::Seconds(10);
// A range of steps is computed.
constexpr absl::Duration kBalanceDeadline = absl::Minutes(1);
// A trainer's step waits for it, and is worth more than the time that is lost.
constexpr absl::Duration kReportDeadline = absl::Seconds(1);

// A step of 131,072 samples takes some 8 MiB.
constexpr int kMaxControlMessage = 256 << 20;
// A chunk and its framing.
constexpr int kMaxPullMessage = static_cast<int>(kMaxChunkBytes) + 1024;

// How long is looked for what is wrong with TLS.
constexpr absl::Duration kDiagnosis = absl::Seconds(2);

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ChannelSecurity& security,
                                           int max_message) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(max_message);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // A Pull may rest for as long as a step takes.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Calls fail while a channel waits to connect again, so it must not wait
  // longer than those who retry them.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Every client has a connection of its own: ranks in one process do not share
  // one connection's window.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Servers are in the cluster; a proxy to the outside is no way to them.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  SetSecurityArguments(security, &arguments);
  const auto credentials = ChannelCredentialsFor(security, address);
  return grpc::CreateCustomChannel(
      address,
      credentials.ok() ? *credentials : grpc::InsecureChannelCredentials(),
      arguments);
}

// One connection each: no channel shares another's (LOCAL_SUBCHANNEL_POOL).
std::vector<std::shared_ptr<grpc::Channel>> MakePullChannels(
    const std::string& address, const ChannelSecurity& security,
    uint32_t streams) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (uint32_t i = 0; i < std::clamp(streams, 1u, kMaxLanes); ++i) {
    channels.push_back(MakeChannel(address, security, kMaxPullMessage));
  }
  return channels;
}

// That others may rely on what a server says of the job.
absl::Status CheckAttached(const v1::AttachResponse& response) {
  if (response.fingerprint().hash().empty()) {
    return absl::InternalError("answered no fingerprint");
  }
  const v1::Job& job = response.job();
  if (job.micro_batch() == 0 || job.global_batch() == 0 ||
      job.global_batch() % job.micro_batch() != 0) {
    return absl::InternalError(absl::StrCat(
        "answered a global batch of ", job.global_batch(),
        " samples, wanted a multiple of the micro-batch, which is ",
        job.micro_batch()));
  }
  return absl::OkStatus();
}

absl::Status CheckAddress(const std::string& address,
                          const ChannelSecurity& security) {
  BALLAST_RETURN_IF_ERROR(CheckServerAddress(address));
  return ChannelCredentialsFor(security, address).status();
}

class GrpcLoaderClient final : public LoaderClient {
 public:
  GrpcLoaderClient(const std::string& address, const ChannelSecurity& security,
                   uint32_t streams)
      : address_(address),
        security_(security),
        address_status_(CheckAddress(address, security)),
        control_(MakeChannel(address, security, kMaxControlMessage)),
        loader_(v1::LoaderService::NewStub(control_)),
        schedule_(v1::ScheduleService::NewStub(control_)),
        metrics_(v1::MetricsService::NewStub(control_)),
        health_(grpc::health::v1::Health::NewStub(control_)),
        // Apart from the control channel, so that a large block never stands
        // before a small answer, and with a tighter bound on its messages.
        pull_(MakePullChannels(address, security, streams)) {}

  absl::StatusOr<v1::AttachResponse> Attach(
      const v1::Role& role, const v1::Fingerprint& expected) override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    v1::AttachRequest request;
    if (role.module() != v1::MODULE_UNSPECIFIED) *request.mutable_role() = role;
    *request.mutable_fingerprint() = expected;
    v1::AttachResponse response;
    grpc::ClientContext context;
    SetDeadline(&context, kDeadline);
    BALLAST_RETURN_IF_ERROR(
        Check("Attach", loader_->Attach(&context, request, &response)));
    BALLAST_RETURN_IF_ERROR(
        Annotate(CheckAttached(response),
                 absl::StrCat("server ", address_, ": Attach")));
    return response;
  }

  absl::StatusOr<v1::StepSchedule> GetSchedule(uint64_t step) override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    v1::GetScheduleRequest request;
    request.set_step(step);
    v1::GetScheduleResponse response;
    grpc::ClientContext context;
    SetDeadline(&context, kDeadline);
    BALLAST_RETURN_IF_ERROR(Check(
        "GetSchedule", schedule_->GetSchedule(&context, request, &response)));
    BALLAST_RETURN_IF_ERROR(
        Annotate(CheckReceivedSchedule(response.schedule(), step),
                 absl::StrCat("server ", address_, ": GetSchedule")));
    return std::move(*response.mutable_schedule());
  }

  absl::StatusOr<std::unique_ptr<ScheduleWatcher>> WatchSchedule(
      uint64_t from_step, uint64_t steps) override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    return MakeGrpcScheduleWatcher(schedule_.get(), from_step, steps, address_);
  }

  absl::StatusOr<std::string> Rendezvous(const std::string& group,
                                         uint32_t rank, uint32_t size,
                                         const std::string& id,
                                         absl::Duration timeout) override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    v1::RendezvousRequest request;
    request.set_group(group);
    request.set_rank(rank);
    request.set_size(size);
    if (rank == 0) request.set_id(id);
    v1::RendezvousResponse response;
    grpc::ClientContext context;
    SetDeadline(&context, timeout);
    // Whoever waits for other ranks waits for the server, too.
    context.set_wait_for_ready(true);
    BALLAST_RETURN_IF_ERROR(
        Check(absl::StrCat("Rendezvous of rank ", rank, " of ", size,
                           " in group ", group),
              loader_->Rendezvous(&context, request, &response)));
    return std::move(*response.mutable_id());
  }

  absl::Status Report(absl::Span<const v1::StepTiming> timings,
                      const std::string& fingerprint) override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    v1::ReportRequest request;
    for (const v1::StepTiming& timing : timings) {
      *request.add_timings() = timing;
    }
    request.set_fingerprint(fingerprint);
    v1::ReportResponse response;
    grpc::ClientContext context;
    SetDeadline(&context, kReportDeadline);
    // A trainer waits for it, so nothing further is found out.
    return Annotate(
        FromGrpcStatus(loader_->Report(&context, request, &response)),
        absl::StrCat("server ", address_, ": Report"));
  }

  absl::StatusOr<std::vector<v1::StepTiming>> GetTimings(
      uint64_t from_step, v1::Module module) override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    v1::GetTimingsRequest request;
    request.set_from_step(from_step);
    request.set_module(module);
    v1::GetTimingsResponse response;
    grpc::ClientContext context;
    SetDeadline(&context, kDeadline);
    BALLAST_RETURN_IF_ERROR(
        Check("GetTimings", loader_->GetTimings(&context, request, &response)));
    return std::vector<v1::StepTiming>(response.timings().begin(),
                                       response.timings().end());
  }

  absl::StatusOr<v1::GetStatusResponse> GetStatus() override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    v1::GetStatusResponse response;
    grpc::ClientContext context;
    SetDeadline(&context, kDeadline);
    BALLAST_RETURN_IF_ERROR(
        Check("GetStatus", metrics_->GetStatus(&context, {}, &response)));
    return response;
  }

  absl::StatusOr<v1::GetBalanceResponse> GetBalance(
      const v1::GetBalanceRequest& request) override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    v1::GetBalanceResponse response;
    grpc::ClientContext context;
    SetDeadline(&context, kBalanceDeadline);
    BALLAST_RETURN_IF_ERROR(Check(
        "GetBalance", metrics_->GetBalance(&context, request, &response)));
    return response;
  }

  absl::StatusOr<v1::GetStatsResponse> GetStats(
      const std::string& prefix) override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    v1::GetStatsRequest request;
    request.set_prefix(prefix);
    v1::GetStatsResponse response;
    grpc::ClientContext context;
    SetDeadline(&context, kDeadline);
    BALLAST_RETURN_IF_ERROR(
        Check("GetStats", metrics_->GetStats(&context, request, &response)));
    return response;
  }

  absl::Status WatchBalance(
      const v1::WatchBalanceRequest& request,
      absl::FunctionRef<bool(const v1::StepBalance&)> on_balance) override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    grpc::ClientContext context;
    const auto reader = metrics_->WatchBalance(&context, request);
    v1::WatchBalanceResponse response;
    while (reader->Read(&response)) {
      if (on_balance(response.balance())) continue;
      context.TryCancel();
      reader->Finish();
      return absl::OkStatus();
    }
    return Check("WatchBalance", reader->Finish());
  }

  absl::Status CheckHealth() override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    grpc::health::v1::HealthCheckResponse response;
    grpc::ClientContext context;
    SetDeadline(&context, kDeadline);
    BALLAST_RETURN_IF_ERROR(
        Check("health check", health_->Check(&context, {}, &response)));
    if (response.status() != grpc::health::v1::HealthCheckResponse::SERVING) {
      return absl::UnavailableError(absl::StrCat(
          "server ", address_, " answers but does not serve: its health is ",
          grpc::health::v1::HealthCheckResponse::ServingStatus_Name(
              response.status())));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<BatchFetcher>> OpenPull(
      const FetchRequest& request) override {
    BALLAST_RETURN_IF_ERROR(address_status_);
    return MakeGrpcBatchFetcher(pull_, request, address_, arenas_, &pools_);
  }

  const std::string& address() const override { return address_; }

 private:
  static void SetDeadline(grpc::ClientContext* context,
                          absl::Duration timeout) {
    context->set_deadline(std::chrono::system_clock::now() +
                          absl::ToChronoNanoseconds(timeout));
  }

  absl::Status Check(absl::string_view call, const grpc::Status& status) const {
    absl::Status result = FromGrpcStatus(status);
    // Nobody here cancels such a call: it is how a server that shuts down ends
    // what is still at work.
    if (absl::IsCancelled(result)) {
      result = absl::UnavailableError("the server is shutting down");
    } else if (absl::IsUnavailable(result)) {
      const absl::Status tls = Diagnose();
      // Else nothing listens at the address, or what does is going away.
      result = !tls.ok() ? tls
                         : absl::UnavailableError(absl::StrCat(
                               result.message(),
                               "; does `ballast-server serve` run there?"));
    }
    return Annotate(result, absl::StrCat("server ", address_, ": ", call));
  }

  absl::Status Diagnose() const {
    if (!UnixPath(address_).empty()) return absl::OkStatus();
    return DiagnoseTls(address_, security_, kDiagnosis);
  }

  const std::string address_;
  const ChannelSecurity security_;
  // Every call fails with it. gRPC itself would only say that there is no
  // channel.
  const absl::Status address_status_;
  const std::shared_ptr<grpc::Channel> control_;
  const std::unique_ptr<v1::LoaderService::Stub> loader_;
  const std::unique_ptr<v1::ScheduleService::Stub> schedule_;
  const std::unique_ptr<v1::MetricsService::Stub> metrics_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  // Of a Pull and its further lanes.
  const std::vector<std::shared_ptr<grpc::Channel>> pull_;
  const std::shared_ptr<ArenaCache> arenas_ = std::make_shared<ArenaCache>();
  BufferPools pools_;
};

}  // namespace

std::vector<std::string> ServerNames(absl::Span<LoaderClient* const> servers) {
  std::vector<std::string> names;
  for (const LoaderClient* server : servers) {
    names.push_back(absl::StrCat("server ", server->address()));
  }
  return names;
}

std::unique_ptr<LoaderClient> LoaderClient::Create(const std::string& address) {
  return CreateSecure(address, ChannelSecurity());
}

std::unique_ptr<LoaderClient> LoaderClient::CreateSecure(
    const std::string& address, const ChannelSecurity& security,
    uint32_t streams) {
  return std::make_unique<GrpcLoaderClient>(address, security, streams);
}

}  // namespace ballast
