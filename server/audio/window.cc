#include "server/audio/window.h"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace ballast {
namespace {

using Features = v1::AudioFamily::Features;

constexpr double kTurn = 2 * std::numbers::pi;

// numpy's cosine of a float32 where the processor has fused multiply-add:
// reduced by multiples of pi/2 in three steps, then a polynomial. It differs
// from the nearest float32 in every sixth value, by one place, which shows in
// the logarithm of bins that hold almost nothing.
float NumpyCosine(float x) {
  constexpr float kMagic = 0x1.8p+23F;
  const float quarters = std::fma(x, 0x1.45f306p-1F, kMagic) - kMagic;
  float r = std::fma(quarters, -0x1.921fb0p+0F, x);
  r = std::fma(quarters, -0x1.5110b4p-22F, r);
  r = std::fma(quarters, -0x1.846988p-48F, r);
  const float r2 = r * r;
  float cosine = 0x1.98e616p-16F;
  for (const float term : {-0x1.6c06dcp-10F, 0x1.55553cp-5F, -0.5F, 1.0F}) {
    cosine = std::fma(cosine, r2, term);
  }
  float sine = 0x1.7d3bbcp-19F;
  for (const float term :
       {-0x1.a06bbap-13F, 0x1.11119ap-7F, -0x1.555556p-3F, 0.0F}) {
    sine = std::fma(sine, r2, term);
  }
  sine = std::fma(sine, r, r);
  switch (static_cast<int>(quarters) & 3) {
    case 0:
      return cosine;
    case 1:
      return -sine;
    case 2:
      return -cosine;
    default:
      return sine;
  }
}

double MakeWeight(Features::Window window, size_t i, size_t length) {
  const auto at = static_cast<double>(i);
  const double turn = kTurn / static_cast<double>(length);
  const float angle = static_cast<float>(at) * static_cast<float>(turn);
  switch (window) {
    case Features::WINDOW_HAMMING:
      return 0.54 -
             0.46 * std::cos(kTurn * at / static_cast<double>(length - 1));
    case Features::WINDOW_HANN_TORCH:
      return 0.5F - 0.5F * static_cast<float>(std::cos(double{angle}));
    case Features::WINDOW_HANN_NUMPY:
      return 0.5F * (1.0F - NumpyCosine(angle));
    default:
      return static_cast<float>(0.5 - 0.5 * std::cos(turn * at));
  }
}

}  // namespace

std::vector<double> MakeWindow(const Features& family) {
  const size_t length = family.window_length();
  const size_t first = family.centred() ? (family.transform() - length) / 2 : 0;
  std::vector<double> window(family.transform());
  for (size_t i = 0; i < length; ++i) {
    window[first + i] = MakeWeight(family.window(), i, length);
  }
  return window;
}

}  // namespace ballast
