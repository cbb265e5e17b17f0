#ifndef BALLAST_TESTS_SIMULATION_SIM_RANDOM_H_
#define BALLAST_TESTS_SIMULATION_SIM_RANDOM_H_

#include <cstdint>

#include "absl/time/time.h"

namespace ballast {

// SplitMix64: the same numbers from a seed on every machine.
class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  }
  // Below `n`, which is at least 1.
  uint64_t Below(uint64_t n) { return Next() % n; }
  bool Chance(double p) {
    return static_cast<double>(Next() >> 11) * 0x1p-53 < p;
  }
  absl::Duration Between(absl::Duration least, absl::Duration most) {
    return least +
           absl::Nanoseconds(Below(1 + (most - least) / absl::Nanoseconds(1)));
  }

 private:
  uint64_t state_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_RANDOM_H_
