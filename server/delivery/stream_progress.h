#ifndef BALLAST_SERVER_DELIVERY_STREAM_PROGRESS_H_
#define BALLAST_SERVER_DELIVERY_STREAM_PROGRESS_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "server/delivery/block_id.h"

namespace ballast {

// The blocks of a stream: from `first` to the end of step number first.step +
// steps - 1.
struct BlockRange {
  BlockId first;
  uint64_t steps = 0;  // 0: no end
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
// once a block of it has been planned. Plain values, no threads or locks:
// thread-compatible.
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

  // Records that the block of kPlan has `bytes` and its step `micro_batches`
  // micro-batches.
  void OnPlanned(uint64_t bytes, uint32_t micro_batches);

  // Records that the block of kBegin has been begun.
  void OnBegun();

  // Records that the oldest block begun has been handed out.
  void OnTaken();

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

  uint32_t prefetch_steps_;
  std::optional<uint64_t> end_step_;  // the first step past the range
  std::deque<BlockId> begun_;         // not taken yet
  BlockId to_begin_;
  NextBlock next_ = NextBlock::kUnknown;  // to_begin_
  uint64_t next_bytes_ = 0;               // with kPlanned
  uint32_t next_micro_batches_ = 0;       // with kPlanned: of its step
  bool stopped_ = false;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_STREAM_PROGRESS_H_
