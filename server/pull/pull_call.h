#ifndef BALLAST_SERVER_PULL_PULL_CALL_H_
#define BALLAST_SERVER_PULL_PULL_CALL_H_

#include <memory>
#include <string>
#include <utility>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "server/pull/call_side.h"
#include "server/pull/pull_context.h"

namespace ballast {

// A call of LoaderService.Pull: admits it, reads its messages and passes its
// events to the side that its first message chooses. Owns itself until gRPC is
// done with it.
class PullCall final : public PullReactor {
 public:
  // Starts a call for `peer`, the client as named by gRPC. Never returns null;
  // beyond the limits the call ends with RESOURCE_EXHAUSTED.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(
      PullContext* context, const std::string& peer);

  void OnReadDone(bool ok) override;
  void OnDone() override;

 protected:
  void OnWritten() override;

 private:
  PullCall(PullContext* context, std::string client, std::string peer)
      : context_(*context),
        client_(std::move(client)),
        peer_(std::move(peer)) {}

  // Chooses the side if `request` is the first message, then passes it on.
  void Dispatch(const absl::StatusOr<v1::PullRequest>& request);
  std::shared_ptr<CallSide> side() const;

  PullContext& context_;
  const std::string client_;  // as counted by PullLimits
  const std::string peer_;
  mutable Mutex side_mutex_;
  // Null before the first message.
  std::shared_ptr<CallSide> side_ ABSL_GUARDED_BY(side_mutex_);
  grpc::ByteBuffer request_;  // owned by gRPC during a read
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_PULL_CALL_H_
