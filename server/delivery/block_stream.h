#ifndef BALLAST_SERVER_DELIVERY_BLOCK_STREAM_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_STREAM_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/delivery/block.h"

namespace ballast {

// A role's blocks in order of (step, micro-batch), built ahead of demand. From
// Loader::OpenStream. Thread-safe; meant for one consumer. May outlive the
// loader, and its blocks may outlive both.
class BlockStream {
 public:
  // Close().
  virtual ~BlockStream() = default;

  // The next block, or nothing while it is being built: then the stream's
  // `ready` runs once, as soon as it is worth trying again. (It also runs when
  // the loader drains, whether or not anybody waits.) Never blocks. An
  // error comes after the blocks before it, is final, and is repeated at every
  // further call:
  //   OUT_OF_RANGE  every block of the range has been taken
  //   DATA_LOSS     a sample could not be read (serve.on_bad_sample)
  //   UNAVAILABLE   the loader drains or is gone
  //   CANCELLED     after Close()
  //   INVALID_ARGUMENT  the schedule has no such step, or the first step no
  //   such
  //                     micro-batch
  //   RESOURCE_EXHAUSTED  the system has no memory
  virtual std::optional<absl::StatusOr<std::unique_ptr<Block>>> TryNext() = 0;

  // OK while blocks may still come; else the error that TryNext answers. For
  // who holds a block back and would not call TryNext for a while. Never
  // blocks.
  virtual absl::Status status() const = 0;

  // Ends the stream and frees what it has built; what is just being built is
  // freed as soon as the samples in work are done. `ready` may still be running
  // on another thread when this returns, but is not called again: a consumer
  // that waits for it must be woken by whoever closes.
  virtual void Close() = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_STREAM_H_
