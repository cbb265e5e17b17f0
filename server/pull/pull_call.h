#ifndef BALLAST_SERVER_PULL_PULL_CALL_H_
#define BALLAST_SERVER_PULL_PULL_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"
#include "server/delivery/block_stream.h"
#include "server/delivery/loader.h"
#include "server/monitor/client_board.h"
#include "server/pull/lane_directory.h"
#include "server/pull/pull_limits.h"
#include "server/pull/pull_meter.h"
#include "server/pull/pull_session.h"
#include "server/service/call_count.h"
#include "server/service/refusal.h"

namespace ballast {

// What all Pulls of a server share. What is pointed at is not owned and must
// outlive the gRPC server, as this must.
struct PullContext {
  Loader* loader = nullptr;
  v1::Fingerprint fingerprint;
  const Refusal* refusal = nullptr;  // ends Pulls with its reason
  CallCount* calls = nullptr;        // counts those that a drain waits for
  PullInstruments* instruments = nullptr;  // may be null, as may be
  ClientBoard* clients = nullptr;
  PullLimits limits;
  LaneDirectory lanes;
};

// One Pull: a PullSession between gRPC and a BlockStream. Each write waits for
// the one before, so a slow reader holds back nobody but itself; while it does,
// the server holds the blocks of its stream's share of memory and nothing else:
// chunks are sent from where they lie.
//
// A Pull may have lanes: other calls of its client, whose first message was a
// Join. Such a call has no session; its Pull writes to it, one chunk after the
// other, and ends it. A lane that ends early ends its Pull.
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
  // Never null; beyond the limits it ends with RESOURCE_EXHAUSTED. `peer`: as
  // gRPC names the client.
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(
      PullContext* context, const std::string& peer);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  PullCall(PullContext* context, std::string client, std::string peer)
      : context_(*context),
        client_(std::move(client)),
        meter_(context->instruments, context->clients, std::move(peer)),
        session_(context->fingerprint, context->loader->arena()) {}

  absl::Status OnRequest(const v1::PullRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the next writes, or ends the call, if it is time.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts to write pending_, where its lane has joined and is free.
  bool SendPending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether no message of a block is still to be written.
  bool AllIsWritten() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing but lent blocks keeps the call open.
  void Linger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The call ends with `status` as soon as no write is under way.
  void End(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLanes(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Of a call that is to be a lane: finds its Pull.
  absl::Status Join(const v1::PullRequest::Join& join)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the Pull, by its lanes, which hold no lock meanwhile.
  absl::Status AddLane(uint32_t lane, std::shared_ptr<PullCall> call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLaneFree(uint32_t lane) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnLaneGone(uint32_t lane) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of a lane, by its Pull, under the Pull's lock.
  void SendChunk(grpc::ByteBuffer chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndLane(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  struct Lane {
    std::shared_ptr<PullCall> call;  // once it has joined
    bool busy = false;
  };

  PullContext& context_;
  const std::string client_;
  Mutex mutex_;
  PullMeter meter_ ABSL_GUARDED_BY(mutex_);
  PullSession session_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<BlockStream> stream_ ABSL_GUARDED_BY(mutex_);
  // The session's next message, while its lane cannot take it.
  std::optional<OutgoingMessage> pending_ ABSL_GUARDED_BY(mutex_);
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(mutex_);  // lane i at i - 1
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool lingers_ ABSL_GUARDED_BY(mutex_) = false;
  bool client_has_finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  // The Pull whose lane this is, and which. Set before others know of it.
  std::shared_ptr<PullCall> main_;
  uint32_t lane_ = 0;
  // gRPC's while a read, or a write, is under way.
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  std::shared_ptr<PullCall> self_;  // until OnDone
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_PULL_CALL_H_
