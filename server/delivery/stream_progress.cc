#include "server/delivery/stream_progress.h"

#include <algorithm>
#include <limits>

namespace ballast {
namespace {

constexpr uint64_t kLastStep = std::numeric_limits<uint64_t>::max();

}  // namespace

StreamProgress::StreamProgress(uint64_t id, const BlockRange& range,
                               uint32_t prefetch_steps, MemoryBudget* budget)
    : id_(id),
      prefetch_steps_(prefetch_steps),
      micro_batches_(std::max(range.micro_batches, 1u)),
      budget_(budget),
      to_take_(range.first),
      to_begin_(range.first) {
  // A range that runs past the last step that there is has no end of its own:
  // the schedule refuses such steps before.
  if (range.steps != 0 && range.steps <= kLastStep - range.first.step) {
    end_step_ = range.first.step + range.steps;
  }
}

StreamProgress::Decision StreamProgress::Next() {
  Decision decision;
  decision.block = to_begin_;
  decision.distance = begun_not_taken_;
  if (stopped_ || PastEnd(to_begin_)) return decision;
  switch (next_) {
    case NextBlock::kUnknown:
      if (to_begin_.step - to_take_.step > prefetch_steps_) return decision;
      next_ = NextBlock::kBeingPlanned;
      decision.action = Action::kPlan;
      return decision;
    case NextBlock::kBeingPlanned:
      return decision;
    case NextBlock::kPlanned:
      if (!budget_->TryReserve(id_, next_bytes_)) return decision;
      next_ = NextBlock::kUnknown;
      ++begun_not_taken_;
      Advance(&to_begin_);
      decision.action = Action::kBuild;
      return decision;
  }
  return decision;
}

void StreamProgress::OnPlanned(uint64_t bytes) {
  next_ = NextBlock::kPlanned;
  next_bytes_ = bytes;
}

void StreamProgress::OnTaken() {
  --begun_not_taken_;
  Advance(&to_take_);
}

bool StreamProgress::AllTaken() const { return PastEnd(to_take_); }

bool StreamProgress::WaitsForMemory() const {
  return !stopped_ && next_ == NextBlock::kPlanned;
}

void StreamProgress::Advance(BlockId* block) const {
  if (++block->micro_batch < micro_batches_) return;
  block->micro_batch = 0;
  ++block->step;
}

bool StreamProgress::PastEnd(const BlockId& block) const {
  return end_step_.has_value() && block.step >= *end_step_;
}

}  // namespace ballast
