#include "server/serve/service/schedule_service.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"

namespace ballast {

using ScheduleReactor =
    StreamReactor<grpc::ServerWriteReactor<v1::WatchScheduleResponse>,
                  v1::WatchScheduleResponse>;

// One WatchSchedule call. next_ and sent_ need no lock: Start and then each
// OnWritten use them, one after the other.
class ScheduleWatch final : public ScheduleReactor,
                            public std::enable_shared_from_this<ScheduleWatch> {
 public:
  ScheduleWatch(ScheduleWatches* watches,
                const v1::WatchScheduleRequest& request)
      : watches_(watches),
        steps_(request.steps()),
        split_(request.split()),
        next_(request.from_step()) {
    watches_->calls_->Begin();
  }

  void Start() { AskForNext(); }

  void OnDone() override {
    // Keeps this alive: the last owner, unless a worker still computes for it.
    const std::shared_ptr<ScheduleWatch> self = shared_from_this();
    watches_->open_.Forget(self);
    watches_->calls_->End();
  }

 protected:
  void OnWritten() override {
    if (ended()) return;
    if (++sent_ == steps_) {
      End(absl::OkStatus());
    } else {
      ++next_;
      AskForNext();
    }
  }

 private:
  void AskForNext() {
    watches_->loader_->PeekSchedule(
        next_,
        [self = shared_from_this()](auto schedule) {
          if (!schedule.ok()) {
            self->End(schedule.status());
            return;
          }
          v1::WatchScheduleResponse response;
          *response.mutable_schedule() = **schedule;
          self->Write(std::move(response));
        },
        split_);
  }

  ScheduleWatches* const watches_;
  const uint64_t steps_;  // 0: no end
  const v1::Split split_;
  uint64_t next_;
  uint64_t sent_ = 0;
};

ScheduleWatches::~ScheduleWatches() = default;

grpc::ServerWriteReactor<v1::WatchScheduleResponse>* ScheduleWatches::Open(
    const v1::WatchScheduleRequest& request) {
  const auto call = std::make_shared<ScheduleWatch>(this, request);
  absl::Status refusal = open_.Add(call, "schedule");
  if (refusal.ok()) {
    call->Start();
  } else {
    call->End(std::move(refusal));
  }
  return call.get();
}

void ScheduleWatches::Drain() { open_.Drain(); }

grpc::ServerUnaryReactor* ScheduleServiceImpl::GetSchedule(
    grpc::CallbackServerContext* context, const v1::GetScheduleRequest* request,
    v1::GetScheduleResponse* response) {
  auto* const reactor = new RoomyReactor;
  if (waiting_.fetch_add(1) >= kMaxWaiting) {
    --waiting_;
    reactor->EndWith(absl::ResourceExhaustedError(absl::StrCat(
        kMaxWaiting, " queries of the schedule are waiting; try again")));
    return reactor;
  }
  // All of them live until the reactor has finished.
  const auto answer = [this, context, reactor, response](auto schedule) {
    absl::StatusOr<std::shared_ptr<void>> room = nullptr;
    if (!schedule.ok()) {
      room = schedule.status();
    } else {
      room = answers_.Take(UnreadAnswers::ClientOf(*context),
                           (*schedule)->ByteSizeLong());
      if (room.ok()) *response->mutable_schedule() = **schedule;
    }
    --waiting_;
    reactor->EndWith(std::move(room));
  };
  if (request->looks()) {
    loader_->PeekSchedule(request->step(), answer, request->split());
  } else {
    loader_->GetSchedule(request->step(), answer, request->split());
  }
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchScheduleResponse>*
ScheduleServiceImpl::WatchSchedule(grpc::CallbackServerContext* /*context*/,
                                   const v1::WatchScheduleRequest* request) {
  return watches_.Open(*request);
}

}  // namespace ballast
