#include "proto/image/resample_weights.h"

#include <algorithm>

namespace ballast {
namespace {

constexpr double kRadius = 2.0;

// Keys' cubic convolution, in Pillow's order of operations.
double Bicubic(double x) {
  constexpr double kA = -0.5;
  if (x < 0.0) x = -x;
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

// Rounds halves away from zero.
int32_t ToFixed(double weight) {
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<int32_t>(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
}

}  // namespace

BicubicFilter::BicubicFilter(uint32_t source, uint32_t output)
    : source_(source),
      // Pillow passes the source's length as a float.
      scale_(static_cast<double>(static_cast<float>(source)) / output) {
  const double widening = std::max(scale_, 1.0);
  support_ = kRadius * widening;
  narrowing_ = 1.0 / widening;
}

const std::vector<int32_t>& BicubicFilter::Weights(uint32_t i,
                                                   uint32_t* first) {
  const double center = (i + 0.5) * scale_;
  // Truncates towards zero, as Pillow's conversion to int does.
  const auto begin =
      static_cast<int64_t>(std::max(0.0, center - support_ + 0.5));
  const auto end =
      std::min<int64_t>(source_, static_cast<int64_t>(center + support_ + 0.5));
  exact_.clear();
  double sum = 0.0;
  for (int64_t x = begin; x < end; ++x) {
    exact_.push_back(Bicubic((x - center + 0.5) * narrowing_));
    sum += exact_.back();
  }
  fixed_.clear();
  for (const double weight : exact_) {
    fixed_.push_back(ToFixed(sum != 0.0 ? weight / sum : weight));
  }
  *first = static_cast<uint32_t>(begin);
  return fixed_;
}

ResampleWeights BicubicWeights(uint32_t source, uint32_t output) {
  BicubicFilter filter(source, output);
  ResampleWeights result;
  result.taps.reserve(output);
  for (uint32_t i = 0; i < output; ++i) {
    ResampleTaps taps;
    const std::vector<int32_t>& weights = filter.Weights(i, &taps.first);
    taps.count = static_cast<uint32_t>(weights.size());
    taps.weights = result.weights.size();
    result.taps.push_back(taps);
    result.weights.insert(result.weights.end(), weights.begin(), weights.end());
  }
  return result;
}

}  // namespace ballast
