#include "server/config/batch_sizes.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr uint64_t kMaxIncrements = 4096;

// The size of a step of the ramp-up, as Megatron computes it: in doubles.
class Rampup {
 public:
  Rampup(const v1::Batch& batch, uint64_t increments)
      : rampup_(batch.rampup()),
        global_(batch.global()),
        samples_per_increment_(static_cast<double>(rampup_.samples()) /
                               static_cast<double>(increments)) {}

  // The size of a step that begins after `samples` of training. Does not fall
  // as they grow.
  uint32_t SizeAfter(uint64_t samples) const {
    if (samples > rampup_.samples()) return global_;
    const uint64_t increments =
        static_cast<double>(samples) / samples_per_increment_;
    return std::min<uint64_t>(
        rampup_.start() + increments * rampup_.increment(), global_);
  }

  std::vector<BatchSize> Sizes() const {
    std::vector<BatchSize> sizes = {{0, 0, SizeAfter(0)}};
    while (sizes.back().samples < global_) {
      const BatchSize& last = sizes.back();
      const auto size_of = [&](uint64_t steps) {
        return SizeAfter(last.samples_before + steps * last.samples);
      };
      // The first step with another size.
      uint64_t few = 0, many = 1;
      while (size_of(many) == last.samples) many *= 2;
      while (few + 1 < many) {
        const uint64_t middle = few + (many - few) / 2;
        (size_of(middle) == last.samples ? few : many) = middle;
      }
      sizes.push_back({last.first_step + many,
                       last.samples_before + many * last.samples,
                       size_of(many)});
    }
    return sizes;
  }

 private:
  const v1::Batch::Rampup& rampup_;
  const uint32_t global_;
  const double samples_per_increment_;
};

absl::StatusOr<std::vector<BatchSize>> RampupSizes(const v1::Batch& batch) {
  const v1::Batch::Rampup& rampup = batch.rampup();
  if (rampup.start() >= batch.global()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found start ", rampup.start(),
                     "; wanted less than batch.global, ", batch.global()));
  }
  const uint32_t growth = batch.global() - rampup.start();
  const uint64_t increments = growth / rampup.increment();
  if (growth % rampup.increment() != 0 || increments > kMaxIncrements) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found increment ", rampup.increment(), "; wanted one that divides ",
        growth, ", from start to batch.global, into at most ", kMaxIncrements,
        " parts"));
  }
  return Rampup(batch, increments).Sizes();
}

// The first step that begins after at least `samples` of training.
uint64_t StepAfter(const std::vector<BatchSize>& sizes, uint64_t samples) {
  const auto next = std::find_if(
      sizes.begin() + 1, sizes.end(),
      [&](const BatchSize& size) { return size.samples_before >= samples; });
  const BatchSize& size = *std::prev(next);
  if (samples <= size.samples_before) return size.first_step;
  return size.first_step +
         (samples - size.samples_before + size.samples - 1) / size.samples;
}

}  // namespace

const BatchSize& SizeAt(const std::vector<BatchSize>& sizes, uint64_t step) {
  const auto after =
      std::upper_bound(sizes.begin(), sizes.end(), step,
                       [](uint64_t wanted, const BatchSize& size) {
                         return wanted < size.first_step;
                       });
  return *std::prev(after);
}

uint64_t SamplesBefore(const std::vector<BatchSize>& sizes, uint64_t step) {
  const BatchSize& size = SizeAt(sizes, step);
  return size.samples_before + (step - size.first_step) * size.samples;
}

absl::StatusOr<std::vector<BatchSize>> BatchSizes(const v1::Batch& batch) {
  std::vector<BatchSize> sizes = {{0, 0, batch.global()}};
  if (batch.has_rampup()) {
    BALLAST_ASSIGN_OR_RETURN(sizes, RampupSizes(batch));
  }
  uint64_t last_step = 0, last_samples = 0;
  for (const v1::Batch::Change& change : batch.changes()) {
    const bool by_samples = change.samples() > 0;
    const uint64_t step =
        by_samples ? StepAfter(sizes, change.samples()) : change.step();
    // Thresholds closer together than a step reach the same one.
    if (by_samples ? step < last_step || change.samples() <= last_samples
                   : step <= last_step) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found ",
          by_samples
              ? absl::StrCat("samples ", change.samples(), ", reached at step ")
              : "step ",
          step, "; wanted a point after that of the preceding entry, step ",
          last_step));
    }
    last_step = step;
    const BatchSize next = {step, SamplesBefore(sizes, step), change.global(),
                            /*is_change=*/true};
    last_samples = by_samples ? change.samples() : next.samples_before;
    // The rest of the ramp-up never begins. Step 0 stays: no change is there.
    while (sizes.back().first_step >= step) sizes.pop_back();
    sizes.push_back(next);
  }
  return sizes;
}

}  // namespace ballast
