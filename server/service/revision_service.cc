#include "server/service/revision_service.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"

namespace ballast {
namespace {

template <typename Response>
auto FinishWith(grpc::ServerUnaryReactor* reactor, Response* response) {
  return [reactor, response](absl::StatusOr<Response> answer) {
    if (answer.ok()) *response = *std::move(answer);
    reactor->Finish(ToGrpcStatus(answer.status()));
  };
}

}  // namespace

absl::Status RevisionServiceImpl::CheckKeeps() const {
  if (keeper_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("server ", name_,
                   " has no serve.revisions, so it would forget a change; "
                   "give every server of the job the key at its next start"));
}

grpc::ServerUnaryReactor* RevisionServiceImpl::GetRevisions(
    grpc::CallbackServerContext* context,
    const v1::GetRevisionsRequest* request,
    v1::GetRevisionsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (keeper_ != nullptr) {
    *response = keeper_->Known(request->have());
  } else {
    response->set_server(name_);
    response->set_decider(decider_);
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* RevisionServiceImpl::Change(
    grpc::CallbackServerContext* context, const v1::ChangeRequest* request,
    v1::ChangeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status keeps = CheckKeeps(); !keeps.ok()) {
    reactor->Finish(ToGrpcStatus(keeps));
    return reactor;
  }
  keeper_->Change(*request, FinishWith(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* RevisionServiceImpl::Agree(
    grpc::CallbackServerContext* context, const v1::AgreeRequest* request,
    v1::AgreeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status keeps = CheckKeeps(); !keeps.ok()) {
    reactor->Finish(ToGrpcStatus(keeps));
    return reactor;
  }
  keeper_->Agree(*request, FinishWith(reactor, response));
  return reactor;
}

}  // namespace ballast
