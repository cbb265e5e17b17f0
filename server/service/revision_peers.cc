#include "server/service/revision_peers.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/revision_service.grpc.pb.h"
#include "server/service/peer_check.h"

namespace ballast {
namespace {

// All changes of a job with their texts.
constexpr int kMaxAnswerBytes = 80 << 20;
// Servers that are asked at the same time.
constexpr size_t kAskedAtOnce = 16;

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

absl::Status AskAll(
    RevisionPeers* peers, const std::vector<std::string>& addresses,
    const v1::AgreeRequest& request, absl::Duration patience,
    const std::function<absl::Status(const std::string& address,
                                     const v1::AgreeResponse& answer)>& each) {
  std::vector<absl::Status> results(addresses.size());
  std::atomic<size_t> next = 0;
  Mutex mutex;
  const auto ask = [&] {
    for (size_t i; (i = next.fetch_add(1)) < results.size();) {
      const std::string& address = addresses[i];
      const auto answer = peers->Agree(address, request, patience);
      MutexLock lock(&mutex);
      results[i] =
          Annotate(answer.ok() ? each(address, *answer) : answer.status(),
                   absl::StrCat("server ", address));
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(results.size(), kAskedAtOnce); ++i) {
    try {
      threads.emplace_back(ask);
    } catch (const std::system_error&) {
      break;  // the others do it
    }
  }
  ask();
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) {
    BALLAST_RETURN_IF_ERROR(result);
  }
  return absl::OkStatus();
}

std::unique_ptr<RevisionPeers> MakeGrpcRevisionPeers(ChannelSecurity security) {
  return std::make_unique<GrpcRevisionPeers>(std::move(security));
}

}  // namespace ballast
