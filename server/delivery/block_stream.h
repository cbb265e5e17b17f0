#ifndef BALLAST_SERVER_DELIVERY_BLOCK_STREAM_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/aligned_buffer.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/spread.h"
#include "server/delivery/block.h"

namespace ballast {

// A role's blocks in order of (step, micro-batch), built ahead of demand.
// Created by Loader::OpenStream. Thread-safe, for one consumer. May outlive the
// loader, and its blocks may outlive both.
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
  // once the samples that workers are building are done. `ready` may still be
  // running on another thread when this returns, but is not called again: the
  // caller must wake a consumer that waits for it.
  virtual void Close() = 0;
};

// The blocks of a stream: from `first` to the end of step number first.step +
// steps - 1; with `share`, those of them that it owns.
struct BlockRange {
  BlockId first;
  uint64_t steps = 0;  // 0: no end
  std::optional<BlockShare> share = std::nullopt;
};

// Decides what one stream does next. Blocks are planned, begun and taken in
// order. Planning determines a block's size; the block begins once there is
// memory for it:
//
//   taken        begun                planned   later
//   ...........|####|####|####|####|+++++++++|........................
//              ^ next to be taken
//
// A block is planned if its step is at most `prefetch_steps` after the step of
// the next block to be taken. The number of micro-batches of a step is known
// once a block of it has been planned. With a share, a block of another server
// is planned for that number alone, and passed over; and while fewer than
// `prefetch_steps` blocks have been begun, later steps are planned as well,
// since the share may have no block in the next ones. Plain values, no threads
// or locks: thread-compatible.
class StreamProgress {
 public:
  enum class Action {
    kNothing,  // ask again after OnPlanned or OnTaken
    kPlan,     // determine the size of `block`, then OnPlanned or Stop
    kBegin,    // get memory for `block`, then OnBegun; repeated until then
  };
  struct Decision {
    Action action = Action::kNothing;
    BlockId block;
    // Blocks of this stream that precede this one and have not been taken.
    uint64_t distance = 0;
    uint64_t bytes = 0;  // with kBegin
  };

  StreamProgress(const BlockRange& range, uint32_t prefetch_steps);

  // The next action. A kPlan counts as done.
  Decision Next();

  // Whether what is planned now is of no use, since GiveBack was called
  // meanwhile. Call once before OnPlanned or Stop; if true, instead of it.
  bool DropsPlan();

  // Records that the block of kPlan has `bytes` and its step `micro_batches`
  // micro-batches. Returns whether the stream wants the block; otherwise it has
  // been passed over.
  bool OnPlanned(uint64_t bytes, uint32_t micro_batches);

  // Records that the block of kBegin has been begun.
  void OnBegun();

  // Records that the oldest block begun has been handed out.
  void OnTaken();

  // Whether the last block begun may be given back: the oldest stays.
  bool MayGiveBack() const { return !stopped_ && begun_.size() > 1; }
  // Records that the last block begun has not been begun after all.
  void GiveBack();

  // Stops planning and beginning blocks.
  void Stop() { stopped_ = true; }

  // The first block that has not been begun, and whether it will be.
  const BlockId& to_begin() const { return to_begin_; }
  bool goes_on() const { return !stopped_ && !PastEnd(to_begin_); }

  // Returns whether every block of the range has been taken.
  bool AllTaken() const;

 private:
  enum class NextBlock { kUnknown, kBeingPlanned, kPlanned };

  // The next block to be taken.
  const BlockId& ToTake() const {
    return begun_.empty() ? to_begin_ : begun_.front();
  }
  bool PastEnd(const BlockId& block) const;
  bool MayPlan() const;
  bool Wants(const BlockId& block) const;
  // Moves to_begin_ on by one block.
  void MoveOn();

  uint32_t prefetch_steps_;
  std::optional<BlockShare> share_;   // nullopt: all blocks
  std::optional<uint64_t> end_step_;  // the first step past the range
  std::deque<BlockId> begun_;         // not taken yet
  BlockId to_begin_;
  NextBlock next_ = NextBlock::kUnknown;  // to_begin_
  uint64_t next_bytes_ = 0;               // with kPlanned
  uint32_t next_micro_batches_ = 0;       // with kPlanned: of its step
  bool drops_plan_ = false;  // with kBeingPlanned: of another block
  bool stopped_ = false;
};

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
    for (const auto& block : queue) {
      if (!block->done) return block->id;
    }
    return std::nullopt;
  }

  const uint64_t id;
  const v1::Role role;
  StreamProgress progress;
  std::function<void()> ready;
  std::optional<PlannedBlock> planned;
  // Blocks that it has begun but not handed out, in order.
  std::deque<std::shared_ptr<LoaderBlock>> queue;
  absl::Status plan_error;  // follows the queued blocks
  // Whether the consumer has requested a block's checksum: workers then compute
  // the checksums of later blocks, ahead of demand.
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

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_STREAM_H_
