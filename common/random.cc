#include "common/random.h"

#include <algorithm>

namespace ballast {
namespace {

uint64_t SplitMix(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint64_t RotateLeft(uint64_t x, int bits) {
  return (x << bits) | (x >> (64 - bits));
}

// e^x for |x| of a few units, as (1 + x/1024)^1024: off by less than 1 %, but
// by the same amount on every platform.
double Exp(double x) {
  double power = 1.0 + x / 1024.0;
  for (int i = 0; i < 10; ++i) power *= power;
  return power;
}

}  // namespace

Random::Random(uint64_t seed, uint64_t stream) {
  uint64_t mix = seed;
  mix = SplitMix(&mix) ^ stream;
  for (uint64_t& word : state_) word = SplitMix(&mix);
}

Random Random::Fork() const {
  return Random(state_[0] ^ RotateLeft(state_[2], 17),
                state_[1] ^ RotateLeft(state_[3], 29));
}

uint64_t Random::Next() {
  const uint64_t result = RotateLeft(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = RotateLeft(state_[3], 45);
  return result;
}

uint32_t Random::Below(uint32_t bound) {
  // The bias of at most bound / 2^32 does not matter here.
  return static_cast<uint32_t>(((Next() >> 32) * bound) >> 32);
}

int Random::Between(int low, int high) {
  return low + static_cast<int>(Below(static_cast<uint32_t>(high - low) + 1));
}

double Random::Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

int Random::Lognormal(double median, double sigma, int low, int high) {
  // The sum of twelve uniform numbers has mean 6 and variance 1.
  double normal = -6.0;
  for (int i = 0; i < 12; ++i) normal += Unit();
  return static_cast<int>(
      std::clamp<double>(median * Exp(sigma * normal), low, high));
}

}  // namespace ballast
