#include "server/service/revision_peers.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/grpc_status.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/revision_service.grpc.pb.h"
#include "server/service/peer_check.h"

namespace ballast {
namespace {

// All changes of a job with their texts.
constexpr int kMaxAnswerBytes = 80 << 20;

class GrpcRevisionPeers final : public RevisionPeers {
 public:
  explicit GrpcRevisionPeers(ChannelSecurity security)
      : security_(std::move(security)) {}

  absl::StatusOr<v1::GetRevisionsResponse> GetRevisions(
      const std::string& address, const v1::GetRevisionsRequest& request,
      absl::Duration patience) override {
    return Call<v1::GetRevisionsResponse>(
        address, patience,
        [&](v1::RevisionService::Stub* stub, auto* context, auto* response) {
          return stub->GetRevisions(context, request, response);
        });
  }
  absl::StatusOr<v1::AgreeResponse> Agree(const std::string& address,
                                          const v1::AgreeRequest& request,
                                          absl::Duration patience) override {
    return Call<v1::AgreeResponse>(
        address, patience,
        [&](v1::RevisionService::Stub* stub, auto* context, auto* response) {
          return stub->Agree(context, request, response);
        });
  }

  void Cancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : open_) context->TryCancel();
  }

 private:
  template <typename Response, typename Method>
  absl::StatusOr<Response> Call(const std::string& address,
                                absl::Duration patience, const Method& method) {
    BALLAST_ASSIGN_OR_RETURN(
        const auto channel,
        MakePeerChannel(address, security_, kMaxAnswerBytes));
    const auto stub = v1::RevisionService::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoMilliseconds(patience));
    {
      MutexLock lock(&mutex_);
      if (cancelled_) return absl::CancelledError("the server drains");
      open_.insert(&context);
    }
    Response response;
    const grpc::Status status = method(stub.get(), &context, &response);
    {
      MutexLock lock(&mutex_);
      open_.erase(&context);
    }
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  const ChannelSecurity security_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<RevisionPeers> MakeGrpcRevisionPeers(ChannelSecurity security) {
  return std::make_unique<GrpcRevisionPeers>(std::move(security));
}

}  // namespace ballast
