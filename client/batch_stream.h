#ifndef BALLAST_CLIENT_BATCH_STREAM_H_
#define BALLAST_CLIENT_BATCH_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/batch_fetcher.h"
#include "client/failover.h"
#include "common/clock.h"

namespace ballast {

// "step 3 micro-batch 1"
std::string DescribeBlock(uint64_t step, uint32_t micro_batch);

// Checks that the header of `block` names the micro-batch and the split that
// `wanted` begins with. Returns the number of micro-batches of the step.
// Errors, which begin with `where`: INTERNAL (the server is at fault);
// UNAVAILABLE (the block was overwritten).
absl::StatusOr<uint32_t> CheckBlockHeader(const FetchedBlock& block,
                                          const FetchRequest& wanted,
                                          absl::string_view where);

// A role's blocks, in order, fetched ahead of demand by the stream's own
// thread. Each block says how many micro-batches its step has. When a server
// fails, hangs or is too slow (failover.h), the stream continues with another
// at the next block: no block is lost or repeated. A block that was overwritten
// in shared memory before Next took it is fetched again, and so is one that the
// caller returns with FetchAgain. With request.share the stream has the blocks
// of that share alone. Thread-safe; Next and FetchAgain are meant
// for one consumer.
class BatchStream {
 public:
  // Opens a fetcher at server number `server` that begins at the position in
  // `request` and counts its blocks in request.held. Called again, with a later
  // position, after a failure.
  using Connect = std::function<absl::StatusOr<std::unique_ptr<BatchFetcher>>(
      size_t server, const FetchRequest& request)>;

  struct Options {
    FetchRequest request;
    // The servers' names in messages, in order of preference. At least one.
    std::vector<std::string> servers = {"the server"};
    FailoverOptions failover;
    // Maximum number of blocks fetched ahead: a bound on bytes alone would not
    // bound blocks that hold no samples.
    int max_queued = 64;
    // The first failure of a server ends the stream with it, as it is.
    bool one_attempt = false;
    Clock* clock = Clock::Real();  // outlives the stream
  };

  // Does not wait for the first connection: Next reports its failure. Errors:
  // INVALID_ARGUMENT (an option out of its range, named).
  static absl::StatusOr<std::unique_ptr<BatchStream>> Create(Connect connect,
                                                             Options options);
  virtual ~BatchStream() = default;  // cancels, then joins

  // Returns the next block; blocks until it has arrived. At most
  // request.max_bytes of blocks (or one block) are held at a time, including
  // blocks that the caller has not destroyed, and one block more while a block
  // from before a failover is held. A caller that keeps blocks while it waits
  // needs a max_bytes that covers them and the next. Blocks may outlive the
  // stream. Errors come after all earlier blocks, are final and are repeated at
  // every further call: OUT_OF_RANGE (all steps are done), CANCELLED, as
  // Failover::OnFailure for the fetchers' errors, and INTERNAL, naming both,
  // for a block that is not the next in order or whose header is not of this
  // version or names another split.
  virtual absl::StatusOr<std::unique_ptr<FetchedBlock>> Next() = 0;

  // Takes back the block that Next returned last, which is not intact: Next
  // will return the same block again, from any server. Never blocks. Errors,
  // also of Next: as OverwriteCount::Note.
  virtual absl::Status FetchAgain(std::unique_ptr<FetchedBlock> block) = 0;

  // Ends a blocked Next, and every later one, with CANCELLED.
  virtual void Cancel() = 0;

  // Cancel, which returns the blocks that have been fetched and that Next has
  // not returned, in order.
  virtual std::vector<std::unique_ptr<FetchedBlock>> CancelAndTake() = 0;

  // Whether a block has been fetched that Next has not returned.
  virtual bool HasBlock() = 0;
};

// Detects a server that hangs or is too slow. Time in which the server has no
// credit does not count: a client that holds its whole allowance waits for
// itself. Pure; thread-compatible.
class HangTimer {
 public:
  // See FailoverOptions.
  HangTimer(absl::Duration silent_after, absl::Duration slow_after)
      : silent_after_(silent_after), slow_after_(slow_after) {}

  // State of the wait for a block.
  struct Wait {
    // Bytes of the block received so far.
    uint64_t bytes = 0;
    // Whether the server has credit for the block.
    bool may_send = false;
  };

  // Begins the wait for a block.
  void Start(absl::Time now);

  // Call regularly during the wait. OK, or DEADLINE_EXCEEDED saying what it
  // waited for and how long. Accurate to the time between two calls.
  absl::Status Check(absl::Time now, const Wait& wait);

 private:
  absl::Duration silent_after_;
  absl::Duration slow_after_;
  absl::Time may_send_since_;
  absl::Time last_byte_;
  uint64_t bytes_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BATCH_STREAM_H_
