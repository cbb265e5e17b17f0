#include "server/audio/log_mel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/audio/mel_filters.h"
#include "server/audio/window.h"

namespace ballast {
namespace {

using Family = v1::AudioFamily;

// Numbers that are 1 unless a family gives them.
double OrOne(double value) { return value == 0 ? 1 : value; }
uint32_t Stack(const Family& family) {
  return std::max(family.frames().stack(), uint32_t{1});
}

}  // namespace

absl::StatusOr<LogMel> LogMel::Create(const Family& family) {
  auto fourier = Fourier::Create(family.features().transform());
  if (!fourier.ok()) return fourier.status();
  return LogMel(family, *std::move(fourier));
}

LogMel::LogMel(const Family& family, Fourier fourier)
    : family_(family),
      fourier_(std::move(fourier)),
      window_(MakeWindow(family.features())) {
  for (const MelFilter& filter : MakeMelFilters(family.features())) {
    filters_.push_back({filter.first, filter.weights.size()});
    weights_.insert(weights_.end(), filter.weights.begin(),
                    filter.weights.end());
  }
}

size_t LogMel::width() const {
  return size_t{family_.features().mels()} * Stack(family_);
}

absl::StatusOr<std::vector<float>> LogMel::Compute(
    const AudioPlan& plan, absl::Span<const float> samples, uint64_t frames) {
  if (samples.size() < plan.samples || frames > plan.shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "features of ", frames, " frames of ", samples.size(),
        " samples; the plan has ", plan.shape, " and ", plan.samples));
  }
  const uint64_t stack = Stack(family_);
  const size_t mels = family_.features().mels();
  const uint64_t rows = frames * stack;
  const uint64_t sounding = CountSounding(plan);
  // The loudest row may be one that is not wanted.
  const uint64_t computed =
      family_.features().range() == 0 ? std::min(rows, sounding) : sounding;
  std::vector<float> values(std::max(rows, computed) * mels);
  const absl::Span<const float> clip = samples.first(plan.samples);
  for (uint64_t row = 0; row < computed; row += kLanes) {
    AddRows(plan, clip, row, std::min<uint64_t>(kLanes, computed - row),
            &values[row * mels]);
  }
  if (rows > computed) {
    const float silence = Logarithm(0);
    std::fill(values.begin() + static_cast<ptrdiff_t>(computed * mels),
              values.end(), silence);
  }
  Finish(&values);
  values.resize(rows * mels);
  if (family_.frames().zero_invalid()) {
    // Times 0, as the processor: the sign stays.
    for (size_t i = plan.frames * stack * mels; i < values.size(); ++i) {
      values[i] *= 0;
    }
  }
  return values;
}

// Rows from 0 up to the last that sees a sample of the clip; the others are
// those of silence.
uint64_t LogMel::CountSounding(const AudioPlan& plan) const {
  const Family::Frames& frames = family_.frames();
  // What is mirrored at the end may sound.
  if (plan.padded - plan.samples <= frames.reflect()) return plan.rows;
  const uint64_t before = frames.reflect() + uint64_t{frames.zeros_before()};
  return std::min(plan.rows, (plan.samples + before - 1) / frames.hop() + 1);
}

// Samples from `first` on of the padded clip with what stands before it;
// later ones are 0.
void LogMel::CopySamples(const AudioPlan& plan, absl::Span<const float> clip,
                         uint64_t first, absl::Span<float> to) const {
  const auto reflect = static_cast<int64_t>(family_.frames().reflect());
  const auto before =
      reflect + static_cast<int64_t>(family_.frames().zeros_before());
  const auto end = static_cast<int64_t>(plan.padded);
  const auto size = static_cast<int64_t>(clip.size());
  const int64_t inside = static_cast<int64_t>(first) - before;
  if (inside >= 0 && inside + static_cast<int64_t>(to.size()) <= size) {
    std::copy_n(clip.begin() + inside, to.size(), to.begin());
    return;
  }
  for (size_t i = 0; i < to.size(); ++i) {
    int64_t at = static_cast<int64_t>(first + i) - before;
    if (reflect > 0 && at < 0) at = -at;
    if (reflect > 0 && at >= end) at = 2 * (end - 1) - at;
    to[i] = at >= 0 && at < size ? clip[static_cast<size_t>(at)] : 0.0F;
  }
}

// Computes `count` rows from `row` on, up to the logarithm.
void LogMel::AddRows(const AudioPlan& plan, absl::Span<const float> clip,
                     uint64_t row, size_t count, float* values) {
  const Family::Features& features = family_.features();
  const size_t hop = family_.frames().hop();
  const size_t points = features.transform();
  const size_t seen = std::min<size_t>(points, family_.frames().span());
  stretch_.resize((kLanes - 1) * hop + seen);
  CopySamples(plan, clip, row * hop, absl::MakeSpan(stretch_));
  frame_.resize(points * kLanes);  // 0 after those that are seen
  Window(seen);
  power_.resize(fourier_.bins() * kLanes);
  fourier_.Power(frame_.data(), &scratch_, power_.data());
  if (features.magnitude()) {
    for (double& value : power_) value = std::sqrt(value);
  }
  const double* weight = weights_.data();
  for (size_t m = 0; m < filters_.size(); ++m) {
    double sums[kLanes] = {};
    const double* bins = power_.data() + filters_[m].first * kLanes;
    for (size_t k = 0; k < filters_[m].bins; ++k, ++weight) {
      for (size_t l = 0; l < kLanes; ++l) {
        sums[l] += bins[k * kLanes + l] * *weight;
      }
    }
    for (size_t l = 0; l < count; ++l) {
      values[l * filters_.size() + m] = Logarithm(sums[l]);
    }
  }
}

// Writes `seen` samples of each lane from stretch_ to frame_. In float32, as
// processors do, but for the product with a window of float64.
void LogMel::Window(size_t seen) {
  const Family::Features& features = family_.features();
  const bool is_single = features.window() != Family::Features::WINDOW_HAMMING;
  const size_t hop = family_.frames().hop();
  const auto c = static_cast<float>(features.preemphasis());
  const auto first = static_cast<float>(1 - features.preemphasis());
  const auto gain = static_cast<float>(OrOne(features.gain()));
  for (size_t i = 0; i < seen; ++i) {
    const double weight = window_[i];
    const auto single = static_cast<float>(weight);
    double* const to = &frame_[i * kLanes];
    for (size_t l = 0; l < kLanes; ++l) {
      const float* from = &stretch_[l * hop + i];
      float value = *from;
      if (c != 0) value = i == 0 ? value * first : value - c * from[-1];
      value *= gain;
      to[l] = is_single ? double{value * single} : double{value} * weight;
    }
  }
}

float LogMel::Logarithm(double value) const {
  const Family::Features& features = family_.features();
  value = features.add_floor() ? value + features.floor()
                               : std::max(value, features.floor());
  // The C library's decimal logarithm takes three times as long.
  const double scale = features.decimal() ? std::numbers::log10e : 1;
  return static_cast<float>(std::log(value) * scale);
}

void LogMel::Finish(std::vector<float>* values) const {
  const Family::Features& features = family_.features();
  if (values->empty()) return;
  const float least = features.range() == 0
                          ? -std::numeric_limits<float>::infinity()
                          : *std::max_element(values->begin(), values->end()) -
                                static_cast<float>(features.range());
  const auto offset = static_cast<float>(features.offset());
  const auto divisor = static_cast<float>(OrOne(features.divisor()));
  if (features.range() == 0 && offset == 0 && divisor == 1) return;
  for (float& value : *values) {
    value = (std::max(value, least) + offset) / divisor;
  }
}

}  // namespace ballast
