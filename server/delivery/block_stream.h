#ifndef BALLAST_SERVER_DELIVERY_BLOCK_STREAM_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_STREAM_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/delivery/block.h"

namespace ballast {

// A role's blocks in order of (step, micro-batch), built ahead of demand.
// Created by Loader::OpenStream. Thread-safe, but for one consumer. May outlive
// the loader, and its blocks may outlive both.
class BlockStream {
 public:
  // Calls Close().
  virtual ~BlockStream() = default;

  // The next block, or nullopt while it is being built: `ready` of the stream
  // then runs once, as soon as another call is worthwhile. (It also runs when
  // the loader drains, whether or not the consumer waits.) Never blocks. An
  // error follows the blocks before it, is final, and is repeated at every
  // further call:
  //   OUT_OF_RANGE  every block of the range has been taken
  //   DATA_LOSS     a sample has a data fault (serve.on_bad_sample)
  //   UNAVAILABLE   a transient fault kept a sample from being read, or the
  //                 loader drains or is gone; a new stream may succeed
  //   CANCELLED     after Close()
  //   INVALID_ARGUMENT  the schedule has no such step, or the first step has
  //                     no such micro-batch
  //   RESOURCE_EXHAUSTED  the system has no memory
  virtual std::optional<absl::StatusOr<std::unique_ptr<Block>>> TryNext() = 0;

  // OK while blocks may follow; otherwise the error that TryNext returns. For a
  // consumer that holds a block and does not call TryNext for a while. Never
  // blocks.
  virtual absl::Status status() const = 0;

  // Ends the stream and frees its blocks; a block that is being built is freed
  // once its samples in work are done. `ready` may still be running on another
  // thread when this returns, but is not called again: the caller must wake a
  // consumer that waits for it.
  virtual void Close() = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_STREAM_H_
