#ifndef BALLAST_CLIENT_BATCH_STREAM_H_
#define BALLAST_CLIENT_BATCH_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/batch_fetcher.h"
#include "common/clock.h"

namespace ballast {

// A role's blocks, in order (each says how many micro-batches its step has),
// fetched ahead of demand by a thread of its own and
// resumed at the next block when the fetcher fails with UNAVAILABLE.
// Thread-safe; Next is meant for one consumer.
class BatchStream {
 public:
  // Makes a fetcher that begins where `request` says; called again, with the
  // position moved on, after a failure.
  using Connect = std::function<absl::StatusOr<std::unique_ptr<BatchFetcher>>(
      const FetchRequest& request)>;

  struct Options {
    FetchRequest request;
    // Attempts in a row without a block between them, then the error stands.
    int max_attempts = 5;
    // Waited before the second attempt; doubled before each further one.
    absl::Duration first_backoff = absl::Milliseconds(500);
    absl::Duration max_backoff = absl::Seconds(10);
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
  // destroyed; for as long as blocks from before a resume are among them, one
  // block more may be. A caller that keeps blocks while it waits needs a
  // max_bytes that covers them and the next. Blocks may outlive the stream.
  // Errors as BatchFetcher::Fetch, after the blocks that came before; and
  // INTERNAL where a block is not the next in order, naming both, or has no
  // header of this version. An error is final and repeated at every further
  // call.
  virtual absl::StatusOr<std::unique_ptr<FetchedBlock>> Next() = 0;

  // Ends a Next that is blocking, and every later one, with CANCELLED.
  virtual void Cancel() = 0;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BATCH_STREAM_H_
