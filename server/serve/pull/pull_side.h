#ifndef BALLAST_SERVER_SERVE_PULL_PULL_SIDE_H_
#define BALLAST_SERVER_SERVE_PULL_PULL_SIDE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"
#include "server/delivery/block_stream.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/loader.h"
#include "server/serve/monitor/server_state.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/pull/pull_session.h"
#include "server/serve/pull/stream_reactor.h"

namespace ballast {

class PullSide;

// The Pulls that lanes may join (PullRequest.Join), by ticket. Thread-safe.
class LaneDirectory {
 public:
  // Returns false if another Pull has this ticket.
  bool Add(const std::string& ticket, std::weak_ptr<PullSide> pull) {
    MutexLock lock(&mutex_);
    return pulls_.emplace(ticket, std::move(pull)).second;
  }
  void Remove(const std::string& ticket) {
    MutexLock lock(&mutex_);
    pulls_.erase(ticket);
  }
  // Null if no Pull has this ticket.
  std::shared_ptr<PullSide> Find(const std::string& ticket) const {
    MutexLock lock(&mutex_);
    const auto found = pulls_.find(ticket);
    return found == pulls_.end() ? nullptr : found->second.lock();
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::weak_ptr<PullSide>> pulls_ ABSL_GUARDED_BY(mutex_);
};

// State shared by all Pulls of a server. Pointers are not owned; their targets
// must outlive the gRPC server, and so must this.
struct PullContext {
  Loader* loader = nullptr;
  v1::Fingerprint fingerprint;
  const Refusal* refusal = nullptr;        // ends Pulls with its reason
  CallCount* calls = nullptr;              // the calls a drain waits for
  PullInstruments* instruments = nullptr;  // may be null
  ClientBoard* clients = nullptr;          // may be null
  PullLimits limits;
  LaneDirectory lanes;
};

// A call of LoaderService.Pull. Its messages are bytes, so that chunks are sent
// from where they are, without a copy.
using PullReactor =
    StreamReactor<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                  grpc::ByteBuffer>;

// The role that a call takes with its first message: a Pull (PullSide) or a
// lane of a Pull (LaneSide). Receives the events of the call, with no lock
// held.
class CallSide {
 public:
  virtual ~CallSide() = default;

  // The client's next message; not OK if it could not be parsed. Called by one
  // thread at a time.
  virtual void OnRequest(const absl::StatusOr<v1::PullRequest>& request) = 0;
  // The client sends no further message.
  virtual void OnClientFinished() = 0;
  // A write is done. May run concurrently with OnRequest.
  virtual void OnWritten() = 0;
  // The last event: the call must not be used afterwards. Returns whether
  // CallCount still counts the call.
  virtual bool OnDone() = 0;
};

// Counts and times one Pull, and keeps its entry on the board of clients.
// Thread-compatible.
class PullMeter {
 public:
  // `instruments` and `board` may be null and are not owned. `peer` is the
  // client's connection.
  PullMeter(PullInstruments* instruments, ClientBoard* board, std::string peer)
      : instruments_(instruments), board_(board) {
    client_.peer = std::move(peer);
  }

  // The Pull's stream is open.
  void Opened(const v1::PullRequest::Open& open);
  // The stream has no block yet for the client, which holds `held` bytes of
  // others. May be repeated.
  void WaitsForBlock(uint64_t held);
  // The stream has handed out a block.
  void GotBlock(const BlockId& block);
  // The client, which holds `held` bytes, has no room for the block. May be
  // repeated.
  void HoldsBack(uint64_t held);
  // The next message of the block is being sent; it may be the first.
  void Sends(const v1::PullResponse& message, uint64_t held);
  // The message has been written. `whole_block`: it was the block's last.
  void Wrote(bool whole_block);
  // The server cannot go on, and the client must go elsewhere.
  void Failed() {
    if (instruments_ != nullptr) instruments_->failed.Add();
  }
  // The stream is closed.
  void Ended() { entry_.reset(); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  void Enter(ClientBoard::State state, Time now);

  PullInstruments* const instruments_;
  ClientBoard* const board_;
  ClientBoard::Client client_;
  std::unique_ptr<ClientBoard::Entry> entry_;  // while the stream is open
  std::optional<Time> waits_since_;  // since when it waits for a block
  Time built_;                       // when the block was handed out
  std::optional<Time> sent_since_;   // when its first message went out
};

// One Pull: a PullSession between gRPC and a BlockStream. Each write waits for
// the previous one, so a slow reader delays only itself. While it does, the
// server holds only the blocks of its stream's share of memory: chunks are sent
// without a copy.
//
// A Pull may have lanes: other calls of its client (LaneSide). The Pull writes
// to them, one chunk after the other, and ends them. A lane that ends early
// ends its Pull.
//
// A Pull that has ended except for the blocks that its client still holds stays
// open for them: it lingers. CallCount no longer counts it then, so a drain
// does not wait for it.
//
// Thread-safe. Locks are taken in this order: mutex_ of a Pull, then mutex_ of
// a StreamReactor (the Pull's or a lane's). `ready` of the stream holds the
// Pull weakly.
class PullSide final : public CallSide,
                       public std::enable_shared_from_this<PullSide> {
 public:
  // `client` is as counted by PullLimits, `peer` as named by gRPC. Neither
  // `context` nor `call` is owned; `call` is used until OnDone.
  PullSide(PullContext* context, PullReactor* call, std::string client,
           std::string peer)
      : context_(*context),
        client_(std::move(client)),
        meter_(context->instruments, context->clients, std::move(peer)),
        session_(context->fingerprint, context->loader->arena()),
        lanes_{{call, false}} {}

  void OnRequest(const absl::StatusOr<v1::PullRequest>& request) override;
  void OnClientFinished() override;
  void OnWritten() override { OnLaneWritten(0); }
  bool OnDone() override;

  // For lanes, which must hold no lock. Once `call` has joined as `lane`, the
  // Pull uses it until OnLaneGone. Errors: UNAVAILABLE (the Pull has ended),
  // NOT_FOUND (it has no such lane to be joined).
  absl::Status AddLane(uint32_t lane, PullReactor* call);
  void OnLaneWritten(uint32_t lane);
  // Has no effect if `call` is not the call that joined as `lane`.
  void OnLaneGone(uint32_t lane, const PullReactor* call);

 private:
  struct Lane {
    PullReactor* call = nullptr;  // null before it joins and after its end
    bool busy = false;
  };

  absl::Status Take(const v1::PullRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OpenStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The stream has news: a block, or its end. A stream that has given way to a
  // newer one ends the call whatever is in progress.
  void OnStreamNews() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the writes that are due, or ends the call.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the next block from the stream. Returns false if no block is ready or
  // the call has ended.
  bool TakeBlock() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes pending_. Returns false while its lane has not joined or is busy.
  bool SendPending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called if the client must speak before the next message: ends the call if
  // the client cannot, or if the stream has ended meanwhile.
  void HoldBack() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether every message of the blocks so far has been written.
  bool AllIsWritten() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From now on only lent blocks keep the call open.
  void Linger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the lanes from number `first` on.
  void EndLanes(size_t first, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  PullContext& context_;
  const std::string client_;
  Mutex mutex_;
  PullMeter meter_ ABSL_GUARDED_BY(mutex_);
  PullSession session_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<BlockStream> stream_ ABSL_GUARDED_BY(mutex_);
  // The session's next message while its lane cannot take it.
  std::optional<OutgoingMessage> pending_ ABSL_GUARDED_BY(mutex_);
  // Indexed by lane number; 0 is the call of the Pull itself.
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  bool has_ticket_ ABSL_GUARDED_BY(mutex_) = false;  // in context_.lanes
  bool client_has_finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool lingers_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_PULL_PULL_SIDE_H_
