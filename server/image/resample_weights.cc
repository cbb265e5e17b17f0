#include "server/image/resample_weights.h"

#include <algorithm>

namespace ballast {
namespace {

constexpr double kRadius = 2.0;

// Keys' cubic convolution. The order of operations is Pillow's.
double Bicubic(double x) {
  constexpr double kA = -0.5;
  if (x < 0.0) x = -x;
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

// Away from zero at a half.
int32_t ToFixed(double weight) {
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<int32_t>(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
}

}  // namespace

ResampleWeights BicubicWeights(uint32_t source, uint32_t output) {
  // Pillow hands the source's length over as a float.
  const double scale = static_cast<double>(static_cast<float>(source)) / output;
  const double widening = std::max(scale, 1.0);
  const double support = kRadius * widening;
  const double narrowing = 1.0 / widening;

  ResampleWeights result;
  result.taps.reserve(output);
  std::vector<double> row;
  for (uint32_t i = 0; i < output; ++i) {
    const double center = (i + 0.5) * scale;
    // Truncated towards zero, as Pillow's conversion to int does.
    const auto first =
        static_cast<int64_t>(std::max(0.0, center - support + 0.5));
    const auto end =
        std::min<int64_t>(source, static_cast<int64_t>(center + support + 0.5));
    row.clear();
    double sum = 0.0;
    for (int64_t x = first; x < end; ++x) {
      row.push_back(Bicubic((x - center + 0.5) * narrowing));
      sum += row.back();
    }
    result.taps.push_back({static_cast<uint32_t>(first),
                           static_cast<uint32_t>(row.size()),
                           result.weights.size()});
    for (const double weight : row) {
      result.weights.push_back(ToFixed(sum != 0.0 ? weight / sum : weight));
    }
  }
  return result;
}

}  // namespace ballast
