#include "server/service/schedule_watches.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/grpc_status.h"
#include "common/mutex.h"

namespace ballast {

// One WatchSchedule. As in PullCall, operations are started under mutex_: gRPC
// never runs a reaction inside the call that starts its operation.
class WatchCall final
    : public grpc::ServerWriteReactor<v1::WatchScheduleResponse>,
      public std::enable_shared_from_this<WatchCall> {
 public:
  WatchCall(ScheduleWatches* watches, const v1::WatchScheduleRequest& request)
      : watches_(watches), steps_(request.steps()), next_(request.from_step()) {
    watches_->calls_->Begin();
  }

  void Start() {
    MutexLock lock(&mutex_);
    AskForNext();
  }

  // The call ends with `status` as soon as no write is under way.
  void End(absl::Status status) {
    MutexLock lock(&mutex_);
    EndLocked(std::move(status));
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) EndLocked(absl::CancelledError("the client left"));
    if (end_.has_value()) {
      EndLocked(*end_);
    } else if (++sent_ == steps_) {
      EndLocked(absl::OkStatus());
    } else {
      ++next_;
      AskForNext();
    }
  }
  void OnCancel() override { End(absl::CancelledError("the client left")); }
  void OnDone() override {
    // The last owner, unless a worker still computes for it.
    const std::shared_ptr<WatchCall> self = shared_from_this();
    watches_->open_.Forget(self);
    watches_->calls_->End();
  }

 private:
  void AskForNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    watches_->loader_->GetSchedule(
        next_, [self = shared_from_this()](auto schedule) {
          // The response is nobody else's before the write.
          if (schedule.ok()) *self->response_.mutable_schedule() = **schedule;
          MutexLock lock(&self->mutex_);
          self->Send(schedule.status());
        });
  }

  void Send(absl::Status computed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (end_.has_value()) return;  // and finished, as nothing was being written
    if (!computed.ok()) {
      EndLocked(std::move(computed));
      return;
    }
    writing_ = true;
    StartWrite(&response_);
  }

  // The first end counts.
  void EndLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!end_.has_value()) end_ = std::move(status);
    if (writing_ || finished_) return;
    finished_ = true;
    Finish(ToGrpcStatus(*end_));
  }

  ScheduleWatches* const watches_;
  const uint64_t steps_;  // 0: no end
  Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_);
  uint64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  // gRPC's while a write is under way, else that of the worker that answers.
  v1::WatchScheduleResponse response_;
};

ScheduleWatches::~ScheduleWatches() = default;

grpc::ServerWriteReactor<v1::WatchScheduleResponse>* ScheduleWatches::Open(
    const v1::WatchScheduleRequest& request) {
  const auto call = std::make_shared<WatchCall>(this, request);
  absl::Status refusal = open_.Add(call, "schedule");
  if (refusal.ok()) {
    call->Start();
  } else {
    call->End(std::move(refusal));
  }
  return call.get();
}

void ScheduleWatches::Drain() { open_.Drain(); }

}  // namespace ballast
