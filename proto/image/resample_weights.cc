#include "proto/image/resample_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace ballast {
namespace {

// The places of the taps of four output pixels.
struct TapsOfFour {
  std::array<double, 4> center;
  std::array<double, 4> first;  // source pixel
  std::array<double, 4> count;
};

#if defined(__x86_64__) && defined(__GNUC__)

#define BALLAST_AVX2 __attribute__((target("avx2")))

BALLAST_AVX2 inline __m256d All(double value) { return _mm256_set1_pd(value); }

// Keys' cubic convolution, in Pillow's order of operations.
BALLAST_AVX2 inline __m256d Cubic(__m256d x) {
  constexpr double kA = -0.5;
  x = _mm256_andnot_pd(All(-0.0), x);
  __m256d inner = _mm256_sub_pd(_mm256_mul_pd(All(kA + 2.0), x), All(kA + 3.0));
  inner = _mm256_mul_pd(_mm256_mul_pd(inner, x), x);
  inner = _mm256_add_pd(inner, All(1.0));
  __m256d outer = _mm256_mul_pd(_mm256_sub_pd(x, All(5.0)), x);
  outer = _mm256_mul_pd(_mm256_add_pd(outer, All(8.0)), x);
  outer = _mm256_mul_pd(_mm256_sub_pd(outer, All(4.0)), All(kA));
  outer = _mm256_and_pd(outer, _mm256_cmp_pd(x, All(2.0), _CMP_LT_OQ));
  return _mm256_blendv_pd(outer, inner, _mm256_cmp_pd(x, All(1.0), _CMP_LT_OQ));
}

// Row t of `rows` gets each pixel's bicubic weight of its source pixel `first`
// + t, or 0 from its `count` on. A pixel's weights add up to 1. The operations
// and their order are the same as in FilterWeights' plain code, so the bits are
// the same.
BALLAST_AVX2 void CubicWeightsAvx2(const TapsOfFour& taps, double narrowing,
                                   size_t num_rows,
                                   std::array<double, 4>* rows) {
  const __m256d center = _mm256_loadu_pd(taps.center.data());
  const __m256d count = _mm256_loadu_pd(taps.count.data());
  __m256d x = _mm256_loadu_pd(taps.first.data());
  __m256d tap = _mm256_setzero_pd();
  __m256d sum = _mm256_setzero_pd();
  for (size_t t = 0; t < num_rows; ++t) {
    const __m256d at = _mm256_add_pd(_mm256_sub_pd(x, center), All(0.5));
    const __m256d weight =
        _mm256_and_pd(Cubic(_mm256_mul_pd(at, All(narrowing))),
                      _mm256_cmp_pd(tap, count, _CMP_LT_OQ));
    _mm256_storeu_pd(rows[t].data(), weight);
    sum = _mm256_add_pd(sum, weight);
    x = _mm256_add_pd(x, All(1.0));
    tap = _mm256_add_pd(tap, All(1.0));
  }
  // Weights whose sum is 0 stay as they are.
  const __m256d is_zero = _mm256_cmp_pd(sum, _mm256_setzero_pd(), _CMP_EQ_OQ);
  sum = _mm256_blendv_pd(sum, All(1.0), is_zero);
  for (size_t t = 0; t < num_rows; ++t) {
    double* const row = rows[t].data();
    _mm256_storeu_pd(row, _mm256_div_pd(_mm256_loadu_pd(row), sum));
  }
}

// Rounds weights to `bits` of a fraction, halves away from zero, and multiplies
// them by `unit`.
BALLAST_AVX2 void RoundWeightsAvx2(const std::array<double, 4>* rows,
                                   size_t num_rows, int bits, int32_t unit,
                                   std::array<int32_t, 4>* fixed) {
  const __m256d scale = All(static_cast<double>(1 << bits));
  const __m128i units = _mm_set1_epi32(unit);
  for (size_t t = 0; t < num_rows; ++t) {
    const __m256d scaled =
        _mm256_mul_pd(_mm256_loadu_pd(rows[t].data()), scale);
    const __m256d signed_half =
        _mm256_or_pd(All(0.5), _mm256_and_pd(scaled, All(-0.0)));
    const __m128i rounded =
        _mm256_cvttpd_epi32(_mm256_add_pd(signed_half, scaled));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(fixed[t].data()),
                     _mm_mullo_epi32(rounded, units));
  }
}

#else

void CubicWeightsAvx2(const TapsOfFour&, double, size_t,
                      std::array<double, 4>*) {}
void RoundWeightsAvx2(const std::array<double, 4>*, size_t, int, int32_t,
                      std::array<int32_t, 4>*) {}

#endif

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
    case ResampleFilter::kOpenCvCubic:
      break;  // ComputeOpenCv
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

bool HasCubicWeightsAvx2() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

double FilterRadius(ResampleFilter filter) {
  switch (filter) {
    case ResampleFilter::kBox:
      return 0.5;
    case ResampleFilter::kBilinear:
      return 1.0;
    case ResampleFilter::kBicubic:
    case ResampleFilter::kOpenCvCubic:
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
  const bool is_opencv = filter_ == ResampleFilter::kOpenCvCubic;
  const double widening = is_opencv ? 1.0 : std::max(scale_, 1.0);
  support_ = FilterRadius(filter_) * widening;
  narrowing_ = 1.0 / widening;
  if (is_opencv || resampling.library != ResampleLibrary::kTorchvision) return;
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

void FilterWeights::ComputeOpenCv(uint32_t begin) {
  constexpr float kA = -0.75F;
  const auto last = static_cast<int64_t>(source_) - 1;
  exact_.assign(4, {});
  for (uint32_t i = 0; i < kGroup; ++i) {
    auto x = static_cast<float>((begin + i + 0.5) * scale_ - 0.5);
    const float down = std::floor(x);
    x -= down;
    const float y = 1 - x;
    std::array<float, 4> weights;
    weights[0] =
        ((kA * (x + 1) - 5 * kA) * (x + 1) + 8 * kA) * (x + 1) - 4 * kA;
    weights[1] = ((kA + 2) * x - (kA + 3)) * x * x + 1;
    weights[2] = ((kA + 2) * y - (kA + 3)) * y * y + 1;
    weights[3] = 1 - weights[0] - weights[1] - weights[2];
    const auto place = [&](int64_t tap) {
      return std::clamp<int64_t>(static_cast<int64_t>(down) - 1 + tap, 0, last);
    };
    group_.first[i] = static_cast<uint32_t>(place(0));
    group_.count[i] = static_cast<uint32_t>(place(3) - place(0)) + 1;
    for (int64_t tap = 0; tap < 4; ++tap) {
      exact_[place(tap) - place(0)][i] += weights[tap];
    }
  }
}

void FilterWeights::ComputeExact(uint32_t begin) {
  if (filter_ == ResampleFilter::kOpenCvCubic) return ComputeOpenCv(begin);
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

}  // namespace ballast
