#include "proto/image/resample_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "proto/image/cubic_weights_avx2.h"

namespace ballast {
namespace {

// Keys' cubic convolution, in Pillow's order of operations.
double Bicubic(double x) {
  constexpr double kA = -0.5;
  if (x < 0.0) x = -x;
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

double Sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double FilterValue(ResampleFilter filter, double x) {
  switch (filter) {
    case ResampleFilter::kBox:
      return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    case ResampleFilter::kBilinear:
      x = std::abs(x);
      return x < 1.0 ? 1.0 - x : 0.0;
    case ResampleFilter::kBicubic:
      return Bicubic(x);
    case ResampleFilter::kLanczos:
      return x >= -3.0 && x < 3.0 ? Sinc(x) * Sinc(x / 3) : 0.0;
  }
  return 0.0;
}

// Fraction bits to which torchvision rounds weights whose largest is `largest`:
// as many as fit 16 bits.
int TorchvisionBits(double largest) {
  int bits = 0;
  while (bits < kWeightBits &&
         static_cast<int>(0.5 + largest * (1 << (bits + 1))) < (1 << 15)) {
    ++bits;
  }
  return bits;
}

// Rounds halves away from zero.
int32_t ToFixed(double weight, int bits) {
  const double scaled = weight * (1 << bits);
  return static_cast<int32_t>(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
}

}  // namespace

double FilterRadius(ResampleFilter filter) {
  switch (filter) {
    case ResampleFilter::kBox:
      return 0.5;
    case ResampleFilter::kBilinear:
      return 1.0;
    case ResampleFilter::kBicubic:
      return 2.0;
    case ResampleFilter::kLanczos:
      return 3.0;
  }
  return 0.0;
}

FilterWeights::FilterWeights(uint32_t source, uint32_t output,
                             const Resampling& resampling)
    : filter_(resampling.filter),
      source_(source),
      // Pillow passes the source's length as a float, PyTorch as a double.
      scale_((resampling.library == ResampleLibrary::kTorchvision
                  ? static_cast<double>(source)
                  : static_cast<double>(static_cast<float>(source))) /
             output),
      has_avx2_(HasCubicWeightsAvx2()) {
  const double widening = std::max(scale_, 1.0);
  support_ = FilterRadius(filter_) * widening;
  narrowing_ = 1.0 / widening;
  if (resampling.library != ResampleLibrary::kTorchvision) return;
  double largest = 0.0;
  for (uint32_t begin = 0; begin < output; begin += kGroup) {
    ComputeExact(begin);
    for (const auto& row : exact_) {
      for (uint32_t i = 0; i < std::min(kGroup, output - begin); ++i) {
        largest = std::max(largest, row[i]);
      }
    }
  }
  fraction_bits_ = TorchvisionBits(largest);
}

void FilterWeights::ComputeExact(uint32_t begin) {
  TapsOfFour taps;
  uint32_t most = 0;
  for (uint32_t i = 0; i < kGroup; ++i) {
    const double center = (begin + i + 0.5) * scale_;
    // Truncates towards zero, as Pillow's conversion to int does.
    const auto first =
        static_cast<int64_t>(std::max(0.0, center - support_ + 0.5));
    const auto end = std::min<int64_t>(
        source_, static_cast<int64_t>(center + support_ + 0.5));
    group_.first[i] = static_cast<uint32_t>(first);
    group_.count[i] = static_cast<uint32_t>(std::max<int64_t>(end - first, 0));
    most = std::max(most, group_.count[i]);
    taps.center[i] = center;
    taps.first[i] = static_cast<double>(first);
    taps.count[i] = group_.count[i];
  }
  exact_.resize(most);
  if (has_avx2_ && filter_ == ResampleFilter::kBicubic) {
    CubicWeightsAvx2(taps, narrowing_, most, exact_.data());
    return;
  }
  for (uint32_t i = 0; i < kGroup; ++i) {
    double sum = 0.0;
    for (uint32_t t = 0; t < group_.count[i]; ++t) {
      const double x = taps.first[i] + t;
      exact_[t][i] =
          FilterValue(filter_, (x - taps.center[i] + 0.5) * narrowing_);
      sum += exact_[t][i];
    }
    for (uint32_t t = 0; t < most; ++t) {
      if (t >= group_.count[i]) exact_[t][i] = 0.0;
      if (sum != 0.0) exact_[t][i] /= sum;
    }
  }
}

const FilterWeights::Group& FilterWeights::WeightsOfGroup(uint32_t begin) {
  if (begin == begin_) return group_;
  ComputeExact(begin);
  begin_ = begin;
  const int32_t unit = 1 << (kWeightBits - fraction_bits_);
  group_.rows.resize(exact_.size());
  if (has_avx2_) {
    RoundWeightsAvx2(exact_.data(), exact_.size(), fraction_bits_, unit,
                     group_.rows.data());
    return group_;
  }
  for (size_t t = 0; t < exact_.size(); ++t) {
    for (uint32_t i = 0; i < kGroup; ++i) {
      group_.rows[t][i] = ToFixed(exact_[t][i], fraction_bits_) * unit;
    }
  }
  return group_;
}

const std::vector<int32_t>& FilterWeights::Weights(uint32_t i,
                                                   uint32_t* first) {
  const uint32_t place = i % kGroup;
  const Group& group = WeightsOfGroup(i - place);
  *first = group.first[place];
  of_pixel_.resize(group.count[place]);
  for (size_t t = 0; t < of_pixel_.size(); ++t) {
    of_pixel_[t] = group.rows[t][place];
  }
  return of_pixel_;
}

ResampleWeights AllWeights(uint32_t source, uint32_t output,
                           const Resampling& resampling) {
  FilterWeights filter(source, output, resampling);
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

ResampleWeights BicubicWeights(uint32_t source, uint32_t output) {
  return AllWeights(source, output, {});
}

}  // namespace ballast
