#ifndef BALLAST_SERVER_SERVE_PULL_PULL_CALL_H_
#define BALLAST_SERVER_SERVE_PULL_PULL_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <grpcpp/alarm.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "server/serve/pull/pull_side.h"

namespace ballast {

// A call of LoaderService.Pull: admits it, reads its messages and passes its
// events to the side that its first message chooses. Owns itself until gRPC is
// done with it.
//
// A call that has ended is done once its last write is. If the client reads
// nothing, it is cancelled after PullLimits::last_write, so that it does not
// keep a block forever.
class PullCall final : public PullReactor {
 public:
  // Starts the call that `rpc` describes. Never returns null; beyond the limits
  // the call ends with RESOURCE_EXHAUSTED.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(
      PullContext* context, grpc::CallbackServerContext* rpc);

  void OnReadDone(bool ok) override;
  void OnDone() override;

 protected:
  void OnWritten() override;
  void OnEndDuringWrite() override;

 private:
  // The call's rpc until it is done; the alarm may outlive both.
  struct Rpc {
    Mutex mutex;
    grpc::CallbackServerContext* context ABSL_GUARDED_BY(mutex) = nullptr;
  };

  PullCall(PullContext* context, grpc::CallbackServerContext* rpc);

  // Chooses the side if `request` is the first message, then passes it on.
  void Dispatch(const absl::StatusOr<v1::PullRequest>& request);
  std::shared_ptr<CallSide> side() const;

  PullContext& context_;
  const std::string peer_;
  const std::string client_;  // as counted by PullLimits
  const std::shared_ptr<Rpc> rpc_ = std::make_shared<Rpc>();
  uint64_t number_ = 0;  // in PullLimits
  std::optional<grpc::Alarm> alarm_;
  mutable Mutex side_mutex_;
  // Null before the first message.
  std::shared_ptr<CallSide> side_ ABSL_GUARDED_BY(side_mutex_);
  grpc::ByteBuffer request_;  // owned by gRPC during a read
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_PULL_PULL_CALL_H_
