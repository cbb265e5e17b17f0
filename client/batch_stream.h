#ifndef BALLAST_CLIENT_BATCH_STREAM_H_
#define BALLAST_CLIENT_BATCH_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/batch_fetcher.h"
#include "client/failover.h"
#include "common/clock.h"

namespace ballast {

// A role's blocks, in order (each says how many micro-batches its step has),
// fetched ahead of demand by a thread of its own. When a server fails, hangs or
// is too slow (failover.h) the stream goes on with another at the next block:
// none is lost and none comes twice. A block that was overwritten in shared
// memory before Next took it is fetched again. Thread-safe; Next is meant for
// one consumer.
class BatchStream {
 public:
  // Opens a fetcher at server number `server` that begins where `request` says,
  // and counts its blocks in request.held; called again, with the position
  // moved, after a failure.
  using Connect = std::function<absl::StatusOr<std::unique_ptr<BatchFetcher>>(
      size_t server, const FetchRequest& request)>;

  struct Options {
    FetchRequest request;
    // The servers' names in messages, in order of preference. At least one.
    std::vector<std::string> servers = {"the server"};
    FailoverOptions failover;
    // Most blocks fetched ahead: bytes alone would not bound blocks that hold
    // no samples.
    int max_queued = 64;
    Clock* clock = Clock::Real();  // outlives the stream
  };

  // Does not wait for the first connection: its failure is Next's. Errors:
  // INVALID_ARGUMENT (an option out of its range, named).
  static absl::StatusOr<std::unique_ptr<BatchStream>> Create(Connect connect,
                                                             Options options);
  virtual ~BatchStream() = default;  // cancels, then joins

  // Blocks until the next block is there. At most request.max_bytes of blocks
  // (or one block) are held at a time, counting those that the caller has not
  // destroyed; while blocks from before a resume are among them, one block more
  // may be. A caller that keeps blocks while it waits needs a max_bytes that
  // covers them and the next. Blocks may outlive the stream. Errors, after the
  // blocks that came before: OUT_OF_RANGE (all steps are done), CANCELLED, and
  // as Failover::OnFailure for the fetchers' errors. A block that is not the
  // next in order, or has no header of this version, is INTERNAL, naming both.
  // An error is final and repeated at every further call.
  virtual absl::StatusOr<std::unique_ptr<FetchedBlock>> Next() = 0;

  // Ends a Next that is blocking, and every later one, with CANCELLED.
  virtual void Cancel() = 0;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BATCH_STREAM_H_
