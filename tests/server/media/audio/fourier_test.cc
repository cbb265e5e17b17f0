#include "server/media/audio/fourier.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace ballast {
namespace {

// Lane l of a transform of `points` differs from the others.
double MakeValue(size_t i, size_t lane) {
  return static_cast<double>(
             static_cast<int>((i * 7919 + lane * 104729) % 2003) - 1001) /
         1001;
}

void ExpectNaivePower(size_t points, double tolerance) {
  const auto fourier = Fourier::Create(points);
  ASSERT_TRUE(fourier.ok()) << fourier.status();
  constexpr size_t kLanes = Fourier::kLanes;
  std::vector<double> samples(points * kLanes);
  for (size_t i = 0; i < points; ++i) {
    for (size_t l = 0; l < kLanes; ++l) {
      samples[i * kLanes + l] = MakeValue(i, l);
    }
  }
  Fourier::Scratch scratch;
  std::vector<double> power(fourier->bins() * kLanes);
  fourier->Power(samples.data(), &scratch, power.data());
  EXPECT_EQ(fourier->bins(), points / 2 + 1);
  for (const size_t lane : {size_t{0}, kLanes - 1}) {
    for (size_t k = 0; k <= points / 2; ++k) {
      double re = 0;
      double im = 0;
      for (size_t i = 0; i < points; ++i) {
        const double angle = 2 * std::numbers::pi *
                             static_cast<double>(i * k % points) /
                             static_cast<double>(points);
        const double x = samples[i * kLanes + lane];
        re += x * std::cos(angle);
        im -= x * std::sin(angle);
      }
      EXPECT_NEAR(
          power[k * kLanes + lane], re * re + im * im,
          tolerance * static_cast<double>(points) * static_cast<double>(points))
          << points << " points, bin " << k << ", lane " << lane;
    }
  }
}

TEST(FourierTest, EqualsANaiveTransform) {
  for (const size_t points : {2, 4, 8, 10, 20, 40, 50, 400, 512, 1024}) {
    ExpectNaivePower(points, 1e-14);
  }
}

TEST(FourierTest, RefusesOtherNumbersOfPoints) {
  for (const size_t points : {0, 1, 3, 6, 7, 401, 402, 414}) {
    EXPECT_FALSE(Fourier::Create(points).ok()) << points;
  }
}

}  // namespace
}  // namespace ballast
