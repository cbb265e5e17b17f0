#include "client/schedule_watcher.h"

#include <atomic>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "proto/schedule/schedule_columns.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

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

std::unique_ptr<ScheduleWatcher> MakeGrpcScheduleWatcher(
    v1::ScheduleService::Stub* stub, uint64_t from_step, uint64_t steps,
    v1::Split split, const std::string& address) {
  return std::make_unique<GrpcScheduleWatcher>(stub, from_step, steps, split,
                                               address);
}

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

}  // namespace ballast
