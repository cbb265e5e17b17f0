#ifndef BALLAST_COMMON_RANDOM_H_
#define BALLAST_COMMON_RANDOM_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ballast {

// Random numbers that are the same on every platform: xoshiro256** seeded by
// SplitMix64, and distributions that use only IEEE additions and
// multiplications (the distributions of <random> and the functions of libm
// differ between libraries). Thread-compatible.
class Random {
 public:
  // Starts stream `stream` of `seed`; streams are independent.
  Random(uint64_t seed, uint64_t stream);

  // Another generator, derived from this one's state, which does not change:
  // numbers that the other draws do not affect what this one draws next.
  Random Fork() const;

  // Uniform over all 64-bit values.
  uint64_t Next();

  // Uniform over [0, bound); bound is at least 1.
  uint32_t Below(uint32_t bound);

  // Uniform over [low, high], low <= high.
  int Between(int low, int high);

  // True `percent` times in a hundred.
  bool Chance(uint32_t percent) { return Below(100) < percent; }

  // Roughly lognormal with the given median and deviation, clipped to [low,
  // high].
  int Lognormal(double median, double sigma, int low, int high);

  template <typename T, size_t n>
  const T& Pick(const T (&choices)[n]) {
    return choices[Below(n)];
  }

 private:
  // Uniform over [0, 1).
  double Unit();

  std::array<uint64_t, 4> state_;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_RANDOM_H_
