#include "server/schedule/step_positions.h"

#include <algorithm>

#include "common/status_macros.h"

namespace ballast {

uint64_t StepPositions::NumberOf(uint64_t step) const {
  uint64_t number = step - first_step_;
  for (const Skip& skip : skips_) {
    if (skip.step <= step) number += skip.steps;
  }
  return number;
}

absl::StatusOr<uint64_t> StepPositions::First(uint64_t step) const {
  if (!HasStarts(step)) return FirstPosition(job_, step);
  return starts_->Start(NumberOf(step));
}

absl::StatusOr<PositionRange> StepPositions::Of(uint64_t step) const {
  PositionRange range;
  if (!HasStarts(step)) {
    BALLAST_ASSIGN_OR_RETURN(range.first, FirstPosition(job_, step));
    range.end = range.first + SamplesOfStep(job_, step);
    return range;
  }
  const uint64_t number = NumberOf(step);
  BALLAST_ASSIGN_OR_RETURN(range.end, starts_->Start(number + 1));
  BALLAST_ASSIGN_OR_RETURN(range.first, starts_->Start(number));
  return range;
}

absl::StatusOr<std::optional<uint64_t>> StepPositions::CountStarts(
    uint64_t position) const {
  if (starts_ == nullptr) return std::nullopt;
  BALLAST_ASSIGN_OR_RETURN(const uint64_t first, starts_->Start(0));
  if (position < first) return std::nullopt;
  return starts_->CountEnded(position);
}

absl::StatusOr<std::optional<uint64_t>> StepPositions::Find(
    uint64_t position) const {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<uint64_t> number,
                           CountStarts(position));
  if (!number.has_value()) return StepOfPosition(job_, position);
  uint64_t left_out = 0;
  for (const Skip& skip : skips_) {
    const uint64_t begin = skip.step - first_step_ + left_out;
    if (*number < begin) break;
    if (*number < begin + skip.steps) return std::optional<uint64_t>();
    left_out += skip.steps;
  }
  return std::make_optional(first_step_ + *number - left_out);
}

absl::StatusOr<uint64_t> StepPositions::CountEnded(uint64_t position) const {
  BALLAST_ASSIGN_OR_RETURN(const std::optional<uint64_t> number,
                           CountStarts(position));
  if (!number.has_value()) return StepsBefore(job_, position);
  uint64_t left_out = 0;
  for (const Skip& skip : skips_) {
    const uint64_t begin = skip.step - first_step_ + left_out;
    if (*number <= begin) break;
    left_out += std::min(*number - begin, skip.steps);
  }
  return first_step_ + *number - left_out;
}

absl::StatusOr<std::vector<PositionRange>> StepPositions::Before(
    uint64_t step) const {
  std::vector<PositionRange> ranges =
      PositionsBefore(job_, HasStarts(step) ? first_step_ : step);
  if (!HasStarts(step)) return ranges;
  uint64_t begin = first_step_;  // of the steps between two skips
  const auto add = [&](uint64_t end) -> absl::Status {
    if (begin >= end) return absl::OkStatus();
    BALLAST_ASSIGN_OR_RETURN(const uint64_t first, First(begin));
    BALLAST_ASSIGN_OR_RETURN(const uint64_t last,
                             starts_->Start(NumberOf(end - 1) + 1));
    ranges.push_back({first, last});
    begin = end;
    return absl::OkStatus();
  };
  for (const Skip& skip : skips_) {
    if (skip.step < step) BALLAST_RETURN_IF_ERROR(add(skip.step));
  }
  BALLAST_RETURN_IF_ERROR(add(step));
  return ranges;
}

}  // namespace ballast
