#include "proto/schedule/split.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ballast {

namespace {

constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();

// A range and the first step after it.
struct Found {
  v1::StepRange range;
  uint64_t end = kUnbounded;
};

Found At(const v1::Job& job, int index) {
  if (job.step_ranges().empty()) {
    Found whole;
    whole.range.set_samples(job.global_batch());
    return whole;
  }
  return {job.step_ranges(index),
          index + 1 == job.step_ranges_size()
              ? kUnbounded
              : job.step_ranges(index + 1).first_step()};
}

// The last range whose `key` is at most `value`, or the first range.
template <typename Key>
Found LastUpTo(const v1::Job& job, uint64_t value, Key key) {
  const auto& ranges = job.step_ranges();
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), value,
                       [key](uint64_t wanted, const v1::StepRange& range) {
                         return wanted < key(range);
                       });
  return At(job, std::max<int>(after - ranges.begin() - 1, 0));
}

Found OfStep(const v1::Job& job, uint64_t step) {
  return LastUpTo(
      job, step, [](const v1::StepRange& range) { return range.first_step(); });
}

Found OfPosition(const v1::Job& job, uint64_t position) {
  return LastUpTo(job, position, [](const v1::StepRange& range) {
    return range.first_position();
  });
}

}  // namespace

uint32_t SamplesOfStep(const v1::Job& job, uint64_t step) {
  return OfStep(job, step).range.samples();
}

uint32_t MostSamplesOfAStep(const v1::Job& job) {
  uint32_t most = job.step_ranges().empty() ? job.global_batch() : 0;
  for (const v1::StepRange& range : job.step_ranges()) {
    most = std::max(
        most, range.samples() == 0 ? job.global_batch() : range.samples());
  }
  return most;
}

absl::StatusOr<uint64_t> FirstPosition(const v1::Job& job, uint64_t step) {
  const v1::StepRange range = OfStep(job, step).range;
  const uint64_t steps = step - range.first_step();
  if (range.samples() == 0) {
    if (steps == 0) return range.first_position();
    return absl::UnimplementedError(
        absl::StrCat("step ", step,
                     ": only its schedule gives its positions, since steps "
                     "from ",
                     range.first_step(), " on differ in size"));
  }
  if (steps >= (kUnbounded - range.first_position()) / range.samples()) {
    return absl::OutOfRangeError(
        absl::StrCat("step ", step, ": its positions overflow uint64 at ",
                     range.samples(), " samples a step"));
  }
  return range.first_position() + steps * range.samples();
}

std::optional<uint64_t> StepOfPosition(const v1::Job& job, uint64_t position) {
  const auto [range, end] = OfPosition(job, position);
  if (position < range.first_position() || range.samples() == 0) {
    return std::nullopt;
  }
  const uint64_t step = range.first_step() +
                        (position - range.first_position()) / range.samples();
  // The range's last steps may be followed by positions that order.skips leaves
  // out.
  if (step >= end) return std::nullopt;
  return step;
}

uint64_t StepsBefore(const v1::Job& job, uint64_t position) {
  const auto [range, end] = OfPosition(job, position);
  if (position < range.first_position() || range.samples() == 0) {
    return range.first_step();
  }
  const uint64_t step = range.first_step() +
                        (position - range.first_position()) / range.samples();
  return std::min(step, end);
}

std::vector<PositionRange> PositionsBefore(const v1::Job& job, uint64_t step) {
  std::vector<PositionRange> positions;
  for (int i = 0; i < std::max(job.step_ranges_size(), 1); ++i) {
    const auto [range, end] = At(job, i);
    if (range.first_step() >= step) break;
    const uint64_t steps = std::min(step, end) - range.first_step();
    positions.push_back({range.first_position(),
                         range.first_position() + steps * range.samples()});
  }
  return positions;
}

uint64_t SamplesBefore(const v1::Job& job, uint64_t step) {
  uint64_t samples = 0;
  for (const PositionRange& range : PositionsBefore(job, step)) {
    samples += range.end - range.first;
  }
  return samples;
}

absl::string_view SplitName(v1::Split split) {
  switch (split) {
    case v1::SPLIT_TRAIN:
      return "train";
    case v1::SPLIT_VALID:
      return "valid";
    case v1::SPLIT_TEST:
      return "test";
    default:
      return "unspecified";
  }
}

std::optional<v1::Split> ParseSplit(absl::string_view name) {
  for (const v1::Split split :
       {v1::SPLIT_TRAIN, v1::SPLIT_VALID, v1::SPLIT_TEST}) {
    if (name == SplitName(split)) return split;
  }
  return std::nullopt;
}

std::string SplitWord(v1::Split split) {
  return split == v1::SPLIT_TRAIN ? "" : absl::StrCat(SplitName(split), " ");
}

absl::Status CheckSplit(const v1::Job& job, v1::Split split) {
  std::vector<absl::string_view> names;
  for (const int known : job.splits()) {
    if (known == split) return absl::OkStatus();
    names.push_back(SplitName(static_cast<v1::Split>(known)));
  }
  if (names.empty()) {
    if (split == v1::SPLIT_TRAIN) return absl::OkStatus();
    names.push_back(SplitName(v1::SPLIT_TRAIN));
  }
  const std::string wanted =
      v1::Split_IsValid(split)
          ? std::string(SplitName(split))
          : absl::StrCat("number ", static_cast<int>(split));
  return absl::InvalidArgumentError(absl::StrCat(
      "split ", wanted, " was asked for, but no source has `split: ", wanted,
      "` (sources[].split); the job has ", absl::StrJoin(names, ", ")));
}

}  // namespace ballast
