#include "server/service/schedule_service.h"

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"

namespace ballast {

grpc::ServerUnaryReactor* ScheduleServiceImpl::GetSchedule(
    grpc::CallbackServerContext* context, const v1::GetScheduleRequest* request,
    v1::GetScheduleResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (waiting_.fetch_add(1) >= kMaxWaiting) {
    --waiting_;
    reactor->Finish(ToGrpcStatus(absl::ResourceExhaustedError(absl::StrCat(
        kMaxWaiting, " queries of the schedule are waiting; try again"))));
    return reactor;
  }
  // The request and the response live until the reactor has finished.
  loader_->GetSchedule(
      request->step(),
      [this, reactor, response](auto schedule) {
        if (schedule.ok()) *response->mutable_schedule() = **schedule;
        --waiting_;
        reactor->Finish(ToGrpcStatus(schedule.status()));
      },
      request->split());
  return reactor;
}

grpc::ServerWriteReactor<v1::WatchScheduleResponse>*
ScheduleServiceImpl::WatchSchedule(grpc::CallbackServerContext* /*context*/,
                                   const v1::WatchScheduleRequest* request) {
  return watches_.Open(*request);
}

}  // namespace ballast
