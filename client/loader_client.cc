#include "client/loader_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/buffer_pool.h"
#include "client/grpc_batch_fetcher.h"
#include "client/pull_channel.h"
#include "client/server_channel.h"
#include "common/grpc_status.h"
#include "common/log.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "proto/health.grpc.pb.h"
#include "proto/loader_service.grpc.pb.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"
#include "proto/schedule_service.grpc.pb.h"

namespace ballast {
namespace {

// Through ScheduleService.WatchSchedule. `stub` must outlive the watcher.
class GrpcScheduleWatcher final : public ScheduleWatcher {
 public:
  GrpcScheduleWatcher(v1::ScheduleService::Stub* stub, uint64_t from_step,
                      uint64_t steps, v1::Split split,
                      const std::string& address)
      : name_(absl::StrCat("server ", address, ": WatchSchedule")),
        steps_(steps),
        split_(split),
        next_(from_step) {
    v1::WatchScheduleRequest request;
    request.set_from_step(from_step);
    request.set_steps(steps);
    request.set_split(split);
    reader_ = stub->WatchSchedule(&context_, request);
  }

  ~GrpcScheduleWatcher() override {
    if (end_.has_value()) return;
    context_.TryCancel();
    // gRPC requires every call to be finished.
    reader_->Finish();
  }

  absl::StatusOr<std::optional<v1::StepSchedule>> Next() override {
    if (!end_.has_value()) {
      absl::Status status;
      if (!cancelled_ && reader_->Read(&response_)) {
        status = CheckReceivedSchedule(response_.schedule(), next_, split_);
        if (status.ok()) {
          ++next_;
          ++received_;
          return std::move(*response_.mutable_schedule());
        }
        context_.TryCancel();
        reader_->Finish();
      } else {
        status = End(reader_->Finish());
      }
      end_ = Annotate(status, name_);
    }
    if (!end_->ok()) return *end_;
    return std::nullopt;
  }

  void Cancel() override {
    cancelled_ = true;
    context_.TryCancel();
  }

 private:
  // Converts the call's final status to the caller's error.
  absl::Status End(const grpc::Status& status) const {
    if (cancelled_) return absl::CancelledError("the watch was cancelled");
    // A server that shuts down cancels its calls; Cancel was not called here.
    if (status.error_code() == grpc::StatusCode::CANCELLED) {
      return absl::UnavailableError(absl::StrCat(
          "the server cancelled the watch: ", status.error_message()));
    }
    if (status.ok() && (steps_ == 0 || received_ != steps_)) {
      return absl::InternalError(
          absl::StrCat("ended after ", received_, " steps, wanted ",
                       steps_ == 0 ? "no end" : absl::StrCat(steps_)));
    }
    return FromGrpcStatus(status);
  }

  const std::string name_;
  const uint64_t steps_;  // 0: no end
  const v1::Split split_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchScheduleResponse>> reader_;
  v1::WatchScheduleResponse response_;
  uint64_t next_;
  uint64_t received_ = 0;
  std::atomic<bool> cancelled_ = false;
  // The status of a finished call.
  std::optional<absl::Status> end_;
};

}  // namespace

absl::Status CheckReceivedSchedule(const v1::StepSchedule& schedule,
                                   uint64_t step, v1::Split split) {
  if (schedule.split() != split) {
    return absl::InternalError(absl::StrCat(
        "answered a step of split ", SplitName(schedule.split()), ", wanted ",
        SplitName(split), "; is the server of another version?"));
  }
  if (schedule.step() != step) {
    return absl::InternalError(
        absl::StrCat("answered step ", schedule.step(), ", wanted ", step));
  }
  const absl::Status columns = CheckColumns(schedule);
  if (columns.ok()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("answered a malformed schedule: ", columns.message()));
}

namespace {

// A trainer's step waits for a Report and is worth more than a lost timing.
constexpr absl::Duration kReportDeadline = absl::Seconds(1);

// Pause between two attempts of a Rendezvous.
constexpr absl::Duration kMeetingPause = absl::Milliseconds(500);
// Time after which a rank that waits in a Rendezvous asks who is missing, and
// time between its questions: longer for groups of more ranks than kOften, all
// of which ask one server.
constexpr absl::Duration kAskPeriod = absl::Seconds(10);
constexpr uint32_t kOften = 1024;
constexpr absl::Duration kAskDeadline = absl::Seconds(2);

absl::Duration AskPeriod(uint32_t size, absl::Duration timeout) {
  return std::min(kAskPeriod * std::max<double>(1, double{1} * size / kOften),
                  timeout / 2);
}

// "ranks 1, 5 of 8 are missing", as far as the server knows.
std::string Missing(const v1::RendezvousResponse& told, uint32_t size) {
  if (told.waiting() == 0) {
    return "no rank waits at the server where groups meet";
  }
  const uint32_t missing = size - std::min(told.waiting(), size);
  const uint32_t named = told.missing_size();
  return absl::StrCat(
      missing == 1 ? "rank " : "ranks ", absl::StrJoin(told.missing(), ", "),
      named < missing ? absl::StrCat(" and ", missing - named, " more") : "",
      " of ", size, missing == 1 ? " has" : " have", " not come",
      told.elsewhere().empty()
          ? ""
          : absl::StrCat("; without an exchange (delivery direct): ",
                         told.elsewhere()));
}

// Marks an error of CheckHealth (absl::Status::SetPayload).
constexpr absl::string_view kNotServing = "ballast/not_serving";

// RendezvousRequest.member.
std::string DrawMember() {
  std::random_device random;
  std::string member;
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = random();
    member.append(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  return member;
}

// Callers divide by and index with the server's values of the job.
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
  for (int i = 0; i < job.step_ranges_size(); ++i) {
    const v1::StepRange& range = job.step_ranges(i);
    // 0: a size for each step, in the last range alone.
    if (range.samples() == 0 ? i + 1 < job.step_ranges_size()
                             : range.samples() % job.micro_batch() != 0) {
      return absl::InternalError(
          absl::StrCat("answered ", range.samples(), " samples for step ",
                       range.first_step(),
                       ", wanted a multiple of the micro-batch, which is ",
                       job.micro_batch()));
    }
  }
  return absl::OkStatus();
}

class GrpcLoaderClient final : public LoaderClient {
 public:
  GrpcLoaderClient(const std::string& address, const ChannelSecurity& security,
                   uint32_t streams)
      : security_(security),
        streams_(streams),
        server_(address, security),
        loader_(v1::LoaderService::NewStub(server_.channel())),
        schedule_(v1::ScheduleService::NewStub(server_.channel())),
        health_(grpc::health::v1::Health::NewStub(server_.channel())),
        pull_(MakeGrpcPullChannel(
            std::make_shared<PullChannels>(address, security, streams))) {}

  std::unique_ptr<LoaderClient> CreateAt(
      const std::string& address) const override {
    ChannelSecurity security = security_;
    const auto own = ParseNetAddress(this->address());
    if (!security.ca.empty() && security.server_name.empty() && own.ok()) {
      security.server_name = own->host;
    }
    return std::make_unique<GrpcLoaderClient>(address, security, streams_);
  }

  absl::StatusOr<v1::AttachResponse> Attach(
      const v1::Role& role, const v1::Fingerprint& expected) override {
    v1::AttachRequest request;
    if (role.module() != v1::MODULE_UNSPECIFIED) *request.mutable_role() = role;
    *request.mutable_fingerprint() = expected;
    BALLAST_ASSIGN_OR_RETURN(
        v1::AttachResponse response,
        server_.Call({.name = "Attach"}, loader_.get(),
                     &v1::LoaderService::Stub::Attach, request));
    BALLAST_RETURN_IF_ERROR(server_.Named("Attach", CheckAttached(response)));
    return response;
  }

  absl::StatusOr<v1::StepSchedule> GetSchedule(uint64_t step, v1::Split split,
                                               Use use) override {
    v1::GetScheduleRequest request;
    request.set_step(step);
    request.set_split(split);
    request.set_looks(use == Use::kLooks);
    BALLAST_ASSIGN_OR_RETURN(
        v1::GetScheduleResponse response,
        server_.Call({.name = "GetSchedule"}, schedule_.get(),
                     &v1::ScheduleService::Stub::GetSchedule, request));
    BALLAST_RETURN_IF_ERROR(
        server_.Named("GetSchedule",
                      CheckReceivedSchedule(response.schedule(), step, split)));
    return std::move(*response.mutable_schedule());
  }

  absl::StatusOr<std::unique_ptr<ScheduleWatcher>> WatchSchedule(
      uint64_t from_step, uint64_t steps, v1::Split split) override {
    BALLAST_RETURN_IF_ERROR(server_.usable());
    return std::make_unique<GrpcScheduleWatcher>(schedule_.get(), from_step,
                                                 steps, split, address());
  }

  absl::StatusOr<std::string> Rendezvous(const std::string& group,
                                         uint32_t rank, uint32_t size,
                                         const std::string& id,
                                         absl::Duration timeout,
                                         const std::string& run) override {
    v1::RendezvousRequest request;
    request.set_group(group);
    request.set_rank(rank);
    request.set_size(size);
    if (rank == 0) request.set_id(id);
    request.set_run(run);
    request.set_member(DrawMember());
    const std::string name = absl::StrCat("Rendezvous of rank ", rank, " of ",
                                          size, " in group ", group);
    const absl::Time start = absl::Now();
    const absl::Time deadline = start + timeout;
    std::string before;   // the last transient error
    std::string missing;  // who was missing when the server was last asked
    const auto ask = [&] {
      v1::RendezvousRequest asks;
      asks.set_group(group);
      asks.set_run(run);
      asks.set_asks(true);
      const absl::StatusOr<v1::RendezvousResponse> told = server_.Call(
          {.name = name,
           .deadline = std::min(kAskDeadline, deadline - absl::Now()),
           .explain = false},
          loader_.get(), &v1::LoaderService::Stub::Rendezvous, asks);
      if (told.ok()) {
        missing = Missing(*told, size);
      } else if (missing.empty()) {
        missing = absl::StrCat("who is missing is not known: ",
                               told.status().message());
      }
      LogWarning("server ", address(), ": ", name, " waits since ",
                 absl::FormatDuration(
                     absl::Trunc(absl::Now() - start, absl::Seconds(1))),
                 ": ", missing);
    };
    while (true) {
      // A rank that waits for other ranks also waits for the server.
      v1::LoaderService::StubInterface::async_interface* const async =
          loader_->async();
      const absl::StatusOr<v1::RendezvousResponse> response =
          server_.CallAndWatch<
              v1::LoaderService::StubInterface::async_interface,
              v1::RendezvousRequest, v1::RendezvousResponse>(
              {.name = name,
               .deadline = deadline - absl::Now(),
               .wait_for_server = true,
               .explain = false},
              async,
              &v1::LoaderService::StubInterface::async_interface::Rendezvous,
              request, AskPeriod(size, timeout), ask);
      if (response.ok()) return response->id();
      const absl::Status& status = response.status();
      // CANCELLED: the server is shutting down.
      const bool may_pass = absl::IsUnavailable(status) ||
                            absl::IsCancelled(status) ||
                            absl::IsResourceExhausted(status);
      const auto said = [&] {
        absl::string_view message = status.message();
        absl::ConsumePrefix(
            &message, server_.Named(name, absl::UnknownError("")).message());
        return std::string(message);
      };
      if (may_pass && absl::Now() + kMeetingPause < deadline) {
        before = said();
        absl::SleepFor(kMeetingPause);
        continue;
      }
      if (!may_pass && !absl::IsDeadlineExceeded(status)) return status;
      if (may_pass) before = said();
      return absl::DeadlineExceededError(absl::StrCat(
          "server ", address(), ": ", name, ": not all ranks met within ",
          absl::FormatDuration(timeout),
          missing.empty() ? "" : absl::StrCat("; ", missing),
          before.empty() ? "" : absl::StrCat("; the server said: ", before),
          "; all ranks of a group name the same group, run and delivery, and "
          "their servers the same topology.meeting"));
    }
  }

  absl::Status Report(absl::Span<const v1::StepTiming> timings,
                      const std::string& fingerprint) override {
    v1::ReportRequest request;
    request.mutable_timings()->Add(timings.begin(), timings.end());
    request.set_fingerprint(fingerprint);
    return server_
        .Call({.name = "Report", .deadline = kReportDeadline, .explain = false},
              loader_.get(), &v1::LoaderService::Stub::Report, request)
        .status();
  }

  absl::StatusOr<std::vector<v1::StepTiming>> GetTimings(
      uint64_t from_step, v1::Module module) override {
    v1::GetTimingsRequest request;
    request.set_from_step(from_step);
    request.set_module(module);
    BALLAST_ASSIGN_OR_RETURN(
        const v1::GetTimingsResponse response,
        server_.Call({.name = "GetTimings"}, loader_.get(),
                     &v1::LoaderService::Stub::GetTimings, request));
    return std::vector<v1::StepTiming>(response.timings().begin(),
                                       response.timings().end());
  }

  absl::Status CheckHealth() override {
    using grpc::health::v1::HealthCheckResponse;
    BALLAST_ASSIGN_OR_RETURN(
        const HealthCheckResponse response,
        server_.Call({.name = "health check"}, health_.get(),
                     &grpc::health::v1::Health::Stub::Check,
                     grpc::health::v1::HealthCheckRequest()));
    if (response.status() == HealthCheckResponse::SERVING) {
      return absl::OkStatus();
    }
    absl::Status status = absl::UnavailableError(absl::StrCat(
        "server ", address(), " answers but does not serve: its health is ",
        HealthCheckResponse::ServingStatus_Name(response.status())));
    status.SetPayload(kNotServing, absl::Cord());
    return status;
  }

  absl::StatusOr<std::unique_ptr<BatchFetcher>> OpenPull(
      const FetchRequest& request) override {
    BALLAST_RETURN_IF_ERROR(server_.usable());
    return MakeGrpcBatchFetcher(pull_, request, address(), arenas_, &pools_);
  }

  const std::string& address() const override { return server_.address(); }

 private:
  const ChannelSecurity security_;
  const uint32_t streams_;
  const ServerChannel server_;
  const std::unique_ptr<v1::LoaderService::Stub> loader_;
  const std::unique_ptr<v1::ScheduleService::Stub> schedule_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  const std::shared_ptr<PullChannel> pull_;
  const std::shared_ptr<ArenaCache> arenas_ = std::make_shared<ArenaCache>();
  BufferPools pools_;
};

}  // namespace

bool AnswersWithoutServing(const absl::Status& status) {
  return status.GetPayload(kNotServing).has_value();
}

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

namespace {

constexpr absl::Duration kFirstRest = absl::Seconds(10);
constexpr absl::Duration kLongestRest = absl::Minutes(5);

bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::Status TimingReporter::Report(const v1::StepTiming& timing,
                                    const std::string& fingerprint) {
  absl::Status status = absl::UnavailableError(
      "no server has taken timings lately, and none is asked now");
  for (size_t i = 0; i < servers_.size(); ++i) {
    const std::optional<size_t> server = Choose(i);
    if (!server.has_value()) continue;
    status = servers_[*server]->Report({timing}, fingerprint);
    Note(*server, status);
    if (!MayPass(status)) break;
  }
  return status;
}

std::optional<size_t> TimingReporter::Choose(size_t i) const {
  MutexLock lock(&mutex_);
  const size_t server = (first_ + i) % servers_.size();
  if (clock_->Now() < failures_[server].not_before) return std::nullopt;
  return server;
}

void TimingReporter::Note(size_t server, const absl::Status& status) {
  MutexLock lock(&mutex_);
  Failures& failures = failures_[server];
  if (!MayPass(status)) {
    failures.in_a_row = 0;
    first_ = server;
    return;
  }
  if (++failures.in_a_row < kTolerated) return;
  absl::Duration rest = kFirstRest;
  for (int i = kTolerated; i < failures.in_a_row && rest < kLongestRest; ++i) {
    rest *= 2;
  }
  failures.not_before = clock_->Now() + std::min(rest, kLongestRest);
}

}  // namespace ballast
