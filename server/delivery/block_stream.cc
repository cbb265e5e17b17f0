#include "server/delivery/block_stream.h"

#include <limits>

namespace ballast {

namespace {

constexpr uint64_t kLastStep = std::numeric_limits<uint64_t>::max();

}  // namespace

StreamProgress::StreamProgress(const BlockRange& range, uint32_t prefetch_steps)
    : prefetch_steps_(prefetch_steps),
      share_(range.share),
      to_begin_(range.first) {
  // A range past the last representable step needs no end here: the schedule
  // refuses such steps first.
  if (range.steps != 0 && range.steps <= kLastStep - range.first.step) {
    end_step_ = range.first.step + range.steps;
  }
}

StreamProgress::Decision StreamProgress::Next() {
  Decision decision;
  decision.block = to_begin_;
  decision.distance = begun_.size();
  if (stopped_ || PastEnd(to_begin_)) return decision;
  switch (next_) {
    case NextBlock::kUnknown:
      if (!MayPlan()) return decision;
      next_ = NextBlock::kBeingPlanned;
      decision.action = Action::kPlan;
      return decision;
    case NextBlock::kBeingPlanned:
      return decision;
    case NextBlock::kPlanned:
      decision.action = Action::kBegin;
      decision.bytes = next_bytes_;
      return decision;
  }
  return decision;
}

bool StreamProgress::OnPlanned(uint64_t bytes, uint32_t micro_batches) {
  next_micro_batches_ = micro_batches;
  if (Wants(to_begin_)) {
    next_ = NextBlock::kPlanned;
    next_bytes_ = bytes;
    return true;
  }
  next_ = NextBlock::kUnknown;
  // The step's other blocks that are not wanted need no plan.
  const uint64_t step = to_begin_.step;
  do {
    MoveOn();
  } while (to_begin_.step == step && !Wants(to_begin_));
  return false;
}

bool StreamProgress::MayPlan() const {
  if (to_begin_.step - ToTake().step <= prefetch_steps_) return true;
  return share_.has_value() && begun_.size() < prefetch_steps_;
}

bool StreamProgress::Wants(const BlockId& block) const {
  return !share_.has_value() || share_->Owns(block.step, block.micro_batch);
}

void StreamProgress::MoveOn() {
  if (++to_begin_.micro_batch >= next_micro_batches_) {
    to_begin_ = {to_begin_.step + 1, 0};
  }
}

void StreamProgress::OnBegun() {
  next_ = NextBlock::kUnknown;
  begun_.push_back(to_begin_);
  MoveOn();
}

void StreamProgress::OnTaken() { begun_.pop_front(); }

void StreamProgress::GiveBack() {
  to_begin_ = begun_.back();
  begun_.pop_back();
  drops_plan_ = next_ == NextBlock::kBeingPlanned;
  if (!drops_plan_) next_ = NextBlock::kUnknown;
}

bool StreamProgress::DropsPlan() {
  if (!drops_plan_) return false;
  drops_plan_ = false;
  next_ = NextBlock::kUnknown;
  return true;
}

bool StreamProgress::AllTaken() const { return PastEnd(ToTake()); }

bool StreamProgress::PastEnd(const BlockId& block) const {
  return end_step_.has_value() && block.step >= *end_step_;
}

}  // namespace ballast
