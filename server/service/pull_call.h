#ifndef BALLAST_SERVER_SERVICE_PULL_CALL_H_
#define BALLAST_SERVER_SERVICE_PULL_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"
#include "proto/schedule.pb.h"
#include "server/delivery/block_stream.h"
#include "server/delivery/loader.h"
#include "server/service/call_count.h"
#include "server/service/pull_meter.h"
#include "server/service/pull_session.h"
#include "server/service/refusal.h"

namespace ballast {

// One Pull: a PullSession between gRPC and a BlockStream. Each write waits for
// the one before, so a slow reader holds back nobody but itself; while it does,
// the server holds the blocks of its stream's share of memory and nothing else:
// chunks are sent from where they lie.
//
// A call that has ended but for the blocks that its client still holds stays
// open for them. It no longer counts as a call then: a drain does not wait for
// it.
//
// Owns itself until gRPC is done with it. `ready` of the stream holds it
// weakly.
class PullCall final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Beside so many calls of `calls` no further Pull is begun: those that never
  // send their Open would count against nothing else.
  static constexpr int64_t kMaxCalls = 65'536;

  // Never null; beyond kMaxCalls it ends with RESOURCE_EXHAUSTED. `loader`,
  // `refusal`, which ends the call with its reason at the next message, and
  // `calls`, which counts the call, are not owned and must outlive the gRPC
  // server. `meter` is told how it goes.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(
      Loader* loader, const v1::Fingerprint& fingerprint,
      const Refusal* refusal, CallCount* calls, PullMeter meter);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  PullCall(Loader* loader, const v1::Fingerprint& fingerprint,
           const Refusal* refusal, CallCount* calls, PullMeter meter)
      : loader_(loader),
        refusal_(refusal),
        calls_(calls),
        meter_(std::move(meter)),
        session_(fingerprint, loader->arena()) {}

  absl::Status OnRequest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the next write, or ends the call, if it is time.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing but lent blocks keeps the call open.
  void Linger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The call ends with `status` as soon as no write is under way.
  void End(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Loader* const loader_;
  const Refusal* const refusal_;
  CallCount* const calls_;
  Mutex mutex_;
  PullMeter meter_ ABSL_GUARDED_BY(mutex_);
  PullSession session_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<BlockStream> stream_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool lingers_ ABSL_GUARDED_BY(mutex_) = false;
  bool client_has_finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  // gRPC's while a read, or a write, is under way.
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  std::shared_ptr<PullCall> self_;  // until OnDone
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_PULL_CALL_H_
