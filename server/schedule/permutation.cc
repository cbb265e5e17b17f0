#include "server/schedule/permutation.h"

#include <bit>

namespace ballast {
namespace {

constexpr int kRounds = 6;
// With fewer bits in each half there are too few round functions to shuffle
// well.
constexpr int kMinHalfBits = 3;

// Mix64 without its last step, which leaves this number of upper bits
// unchanged. Each round waits for the one before, so each step of a round
// counts.
constexpr int kBitsBeforeLastStep = 31;
inline uint64_t MixBeforeLastStep(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  return (value ^ (value >> 27)) * 0x94D049BB133111EBu;
}

}  // namespace

uint64_t Mix64(uint64_t value) {
  value = MixBeforeLastStep(value);
  return value ^ (value >> kBitsBeforeLastStep);
}

Permutation::Permutation(uint64_t size, uint64_t key) : size_(size), key_(key) {
  const int bits = std::bit_width(size - 1);
  half_bits_ = bits < 2 * kMinHalfBits ? kMinHalfBits : (bits + 1) / 2;
}

uint64_t Permutation::operator()(uint64_t i) const {
  if (size_ == 1) return 0;
  do {
    i = Encrypt(i);
  } while (i >= size_);
  return i;
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  return half_bits_ <= kBitsBeforeLastStep ? Encrypt(value, MixBeforeLastStep)
                                           : Encrypt(value, Mix64);
}

template <typename Mix>
uint64_t Permutation::Encrypt(uint64_t value, Mix mix) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    // The shift keeps the mixer's best bits.
    const uint64_t mixed =
        mix(key_ + round * 0xD1B54A32D192ED03u + right) >> (64 - half_bits_);
    const uint64_t next = left ^ mixed;
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace ballast
