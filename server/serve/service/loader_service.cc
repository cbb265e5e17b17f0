#include "server/serve/service/loader_service.h"

#include <google/protobuf/util/message_differencer.h>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "proto/schedule/fingerprint.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

using google::protobuf::util::MessageDifferencer;

// One Rendezvous call whose group meets at this server. Deletes itself when
// gRPC is done with it.
class RendezvousCall final : public grpc::ServerUnaryReactor {
 public:
  RendezvousCall(Rendezvous* rendezvous, CallCount* calls,
                 const v1::RendezvousRequest& request,
                 v1::RendezvousResponse* response)
      : rendezvous_(rendezvous), calls_(calls) {
    calls_->Begin();
    // gRPC runs no reaction before the handler that creates this has returned,
    // so ticket_ is set when OnCancel reads it.
    ticket_ = rendezvous->Join(
        request,
        [this, response](absl::StatusOr<v1::RendezvousResponse> answer) {
          if (answer.ok()) *response = *std::move(answer);
          Finish(ToGrpcStatus(answer.status()));
        });
  }

  // Also called when the deadline has passed.
  void OnCancel() override {
    if (rendezvous_->Leave(ticket_)) {
      Finish(ToGrpcStatus(absl::CancelledError("the caller left")));
    }
  }
  void OnDone() override {
    calls_->End();
    delete this;
  }

 private:
  Rendezvous* const rendezvous_;
  CallCount* const calls_;
  uint64_t ticket_ = 0;
};

// Whether steps have as many micro-batches with either job, as clients count.
bool HaveSameCounts(const v1::Job& a, const v1::Job& b) {
  const auto counted = [](const v1::Job& job) {
    v1::Job counts;
    counts.set_global_batch(job.global_batch());
    counts.set_micro_batch(job.micro_batch());
    *counts.mutable_step_ranges() = job.step_ranges();
    counts.set_counts_in_schedules(job.counts_in_schedules());
    return counts;
  };
  return MessageDifferencer::Equals(counted(a), counted(b));
}

}  // namespace

LoaderServiceImpl::LoaderServiceImpl(std::string name,
                                     const Scheduler* scheduler, Loader* loader,
                                     CallCount* calls,
                                     const PullLimits::Settings& limits,
                                     PullInstruments* instruments,
                                     ClientBoard* clients,
                                     RendezvousForwarder* meeting)
    : name_(std::move(name)),
      scheduler_(scheduler),
      calls_(calls),
      meeting_(meeting),
      timings_(scheduler->job(),
               [scheduler](uint64_t step) -> const v1::Job& {
                 return scheduler->job_at(step);
               }),
      pulls_{loader,  scheduler->fingerprint(), &refusal_, calls, instruments,
             clients, PullLimits(limits),       {}} {}

absl::Status LoaderServiceImpl::refusal() const {
  BALLAST_RETURN_IF_ERROR(refusal_.status());
  return attaching_.status();
}

grpc::ServerUnaryReactor* LoaderServiceImpl::Attach(
    grpc::CallbackServerContext* context, const v1::AttachRequest* request,
    v1::AttachResponse* response) {
  const absl::Status status = [&]() -> absl::Status {
    BALLAST_RETURN_IF_ERROR(
        CheckSameFingerprint(scheduler_->fingerprint(), "the server",
                             request->fingerprint(), "the client"));
    if (request->role().module() == v1::MODULE_UNSPECIFIED) {
      return absl::OkStatus();
    }
    BALLAST_RETURN_IF_ERROR(refusal());
    return CheckRole(scheduler_->job(), request->role());
  }();
  if (status.ok()) {
    const auto of_split = scheduler_->OfSplit(request->role().split());
    const Scheduler& scheduler = of_split.ok() ? **of_split : *scheduler_;
    *response->mutable_fingerprint() = scheduler.fingerprint();
    v1::Job* const job = response->mutable_job();
    *job = scheduler.job();
    for (v1::Revision& revision : scheduler.revisions()) {
      if (!HaveSameCounts(*job, scheduler.job_at(revision.first_step()))) {
        job->set_counts_in_schedules(true);
      }
      *response->add_revisions() = std::move(revision);
    }
    response->set_server(name_);
    response->set_workers(pulls_.loader->workers());
    response->set_refusal(std::string(refusal().message()));
    if (request->role().module() != v1::MODULE_UNSPECIFIED) {
      response->set_asks_otherwise(
          std::string(pulls_.loader->CheckAskAlike(request->role()).message()));
    }
  }
  return Finished(context, status);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
LoaderServiceImpl::Pull(grpc::CallbackServerContext* context) {
  return PullCall::Start(&pulls_, context);
}

grpc::ServerUnaryReactor* LoaderServiceImpl::Rendezvous(
    grpc::CallbackServerContext* context, const v1::RendezvousRequest* request,
    v1::RendezvousResponse* response) {
  if (context->deadline() == std::chrono::system_clock::time_point::max()) {
    return Finished(context, absl::InvalidArgumentError(
                                 "Rendezvous has no deadline; a rank must not "
                                 "wait for the others without an end"));
  }
  if (request->passed_on().empty()) {
    if (meeting_ != nullptr) {
      return meeting_->Open(context, *request, response);
    }
  } else if (request->passed_on() != scheduler_->fingerprint().hash()) {
    return Finished(
        context, absl::FailedPreconditionError(absl::StrCat(
                     "the server that passed the call on has fingerprint ",
                     request->passed_on(), ", server ", name_,
                     ", where groups meet, ", scheduler_->fingerprint().hash(),
                     "; is topology.meeting an address of another job?")));
  }
  if (request->asks()) {
    *response = rendezvous_.WhoWaits(*request);
    response->set_elsewhere(
        absl::StrJoin(pulls_.loader->RolesAskingDirect(), ", ",
                      [](std::string* text, const v1::Role& role) {
                        absl::StrAppend(text, ModuleName(role.module()),
                                        " rank ", role.dp_rank());
                      }));
    return Finished(context, absl::OkStatus());
  }
  return new RendezvousCall(&rendezvous_, calls_, *request, response);
}

void LoaderServiceImpl::Drain() {
  rendezvous_.Drain();
  if (meeting_ != nullptr) meeting_->Drain();
}

grpc::ServerUnaryReactor* LoaderServiceImpl::Report(
    grpc::CallbackServerContext* context, const v1::ReportRequest* request,
    v1::ReportResponse* /*response*/) {
  const absl::Status status = [&]() -> absl::Status {
    if (request->fingerprint().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("ReportRequest.fingerprint is empty; wanted ",
                       scheduler_->fingerprint().hash()));
    }
    v1::Fingerprint client;
    client.set_hash(request->fingerprint());
    BALLAST_RETURN_IF_ERROR(CheckSameFingerprint(
        scheduler_->fingerprint(), "the server", client, "the client"));
    return timings_.Add(absl::MakeConstSpan(request->timings().data(),
                                            request->timings_size()));
  }();
  return Finished(context, status);
}

grpc::ServerUnaryReactor* LoaderServiceImpl::GetTimings(
    grpc::CallbackServerContext* context, const v1::GetTimingsRequest* request,
    v1::GetTimingsResponse* response) {
  if (!v1::Module_IsValid(request->module())) {
    return Finished(context,
                    absl::InvalidArgumentError(absl::StrCat(
                        "GetTimingsRequest.module is ", request->module(),
                        ", wanted the number of a module, or 0 for every "
                        "module")));
  }
  for (v1::StepTiming& timing :
       timings_.Get(request->from_step(), request->module())) {
    *response->add_timings() = std::move(timing);
  }
  return Finished(context, absl::OkStatus());
}

}  // namespace ballast
