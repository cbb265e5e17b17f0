#ifndef BALLAST_SERVER_DELIVERY_STREAM_PROGRESS_H_
#define BALLAST_SERVER_DELIVERY_STREAM_PROGRESS_H_

#include <compare>
#include <cstdint>
#include <deque>
#include <optional>

namespace ballast {

// Which block of a role.
struct BlockId {
  uint64_t step = 0;
  uint32_t micro_batch = 0;

  auto operator<=>(const BlockId&) const = default;
};

// The blocks of a stream: from `first` to the end of step first.step + steps
// - 1.
struct BlockRange {
  BlockId first;
  uint64_t steps = 0;  // 0: no end
};

// What one stream does next. Blocks are planned, begun and taken in order, each
// first planned (its size becomes known), then begun once there is memory for
// it:
//
//   taken        begun                planned   not yet looked at
//   ...........|####|####|####|####|+++++++++|........................
//              ^ next to be taken
//
// A block is looked at while its step is at most `prefetch_steps` after the
// step of the next block to be taken. How many micro-batches a step has is
// known when a block of it has been planned. Plain values, no threads or locks:
// thread-compatible.
class StreamProgress {
 public:
  enum class Action {
    kNothing,  // ask again after OnPlanned or OnTaken
    kPlan,     // find out the size of `block`, then OnPlanned or Stop
    kBegin,    // get memory for `block`, then OnBegun; until then it is asked
               // for again
  };
  struct Decision {
    Action action = Action::kNothing;
    BlockId block;
    // Blocks of this stream that are wanted before this one.
    uint64_t distance = 0;
    uint64_t bytes = 0;  // with kBegin
  };

  StreamProgress(const BlockRange& range, uint32_t prefetch_steps);

  // The next thing to do. A kPlan counts as done.
  Decision Next();

  // The block that kPlan named has `bytes`, and its step has `micro_batches`
  // micro-batches, which that block is one of.
  void OnPlanned(uint64_t bytes, uint32_t micro_batches);

  // The block that kBegin named has been begun.
  void OnBegun();

  // The oldest block that was begun has been handed out.
  void OnTaken();

  // No further block is planned or begun.
  void Stop() { stopped_ = true; }

  // The first block that has not been begun, and whether it ever will be.
  const BlockId& to_begin() const { return to_begin_; }
  bool goes_on() const { return !stopped_ && !PastEnd(to_begin_); }

  // Whether every block of the range has been taken.
  bool AllTaken() const;

 private:
  enum class NextBlock { kUnknown, kBeingPlanned, kPlanned };

  // The next to be taken.
  const BlockId& ToTake() const {
    return begun_.empty() ? to_begin_ : begun_.front();
  }
  bool PastEnd(const BlockId& block) const;

  uint32_t prefetch_steps_;
  std::optional<uint64_t> end_step_;  // first step that is not wanted
  std::deque<BlockId> begun_;         // and not taken
  BlockId to_begin_;
  NextBlock next_ = NextBlock::kUnknown;  // to_begin_
  uint64_t next_bytes_ = 0;               // with kPlanned
  uint32_t next_micro_batches_ = 0;       // with kPlanned: of its step
  bool stopped_ = false;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_STREAM_PROGRESS_H_
