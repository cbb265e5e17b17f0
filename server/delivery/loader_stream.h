#ifndef BALLAST_SERVER_DELIVERY_LOADER_STREAM_H_
#define BALLAST_SERVER_DELIVERY_LOADER_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/aligned_buffer.h"
#include "proto/schedule.pb.h"
#include "server/delivery/block_build.h"
#include "server/delivery/block_id.h"
#include "server/delivery/stream_progress.h"

namespace ballast {

// The loader's bookkeeping of blocks and streams. Plain values, guarded by the
// loader's lock: thread-compatible.

// A block of the ledger. Its memory belongs to the builder until it is done.
struct LoaderBlock {
  uint64_t number = 0;  // in the ledger
  BlockId id;
  std::optional<uint64_t> offset;  // in the arena; nullopt: outside
  AlignedBuffer buffer;            // its memory outside the arena
  absl::Span<uint8_t> memory;
  std::shared_ptr<BlockBuild> build;  // while samples are being built
  bool wants_checksum = false;        // once built
  bool done = false;
  absl::Status status;               // valid once done
  std::optional<uint64_t> checksum;  // nullopt: not computed yet
  uint64_t generation = 0;  // valid once done and OK, in the arena only
};

// A stream's hold on a block that it has begun but not handed out.
struct QueuedBlock {
  std::shared_ptr<LoaderBlock> block;
  bool lendable;
};

// An open stream.
struct LoaderStream {
  LoaderStream(uint64_t id, const v1::Role& role, const BlockRange& range,
               uint32_t prefetch_steps, std::function<void()> ready)
      : id(id),
        role(role),
        progress(range, prefetch_steps),
        ready(std::move(ready)) {}

  // The first block that has been begun but is not built; nullopt if all are.
  std::optional<BlockId> FirstUnbuilt() const {
    for (const QueuedBlock& queued : queue) {
      if (!queued.block->done) return queued.block->id;
    }
    return std::nullopt;
  }

  const uint64_t id;
  const v1::Role role;
  StreamProgress progress;
  std::function<void()> ready;
  std::optional<PlannedBlock> planned;
  std::deque<QueuedBlock> queue;  // in order
  absl::Status plan_error;        // follows the queued blocks
  // Whether the consumer has asked for a block's checksum: workers then compute
  // those of later blocks, ahead of demand.
  bool asks_checksums = false;
  bool waits_for_memory = false;
  bool waits_for_encoders = false;
  bool ready_is_owed = false;
  // When the consumer last took a block, or the stream was opened, counted in
  // such events of the loader.
  uint64_t last_taken = 0;
  absl::Status end;  // once not OK, returned by every call
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_LOADER_STREAM_H_
