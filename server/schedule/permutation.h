#ifndef BALLAST_SERVER_SCHEDULE_PERMUTATION_H_
#define BALLAST_SERVER_SCHEDULE_PERMUTATION_H_

#include <cstdint>

namespace ballast {

// A keyed permutation of 0..size-1 that is computed, not stored: O(1) memory
// and expected O(1) time for any element. Uses only integers, so it is the same
// on every machine. A plain value; thread-safe.
//
// A balanced Feistel network over the smallest even number of bits that holds
// `size`, applied repeatedly until the result is below `size` (cycle walking:
// Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). It
// shuffles well; it is not cryptography.
class Permutation {
 public:
  // `size` must not be 0.
  Permutation(uint64_t size, uint64_t key);

  // The image of element `i`, which is below size().
  uint64_t operator()(uint64_t i) const;

  uint64_t size() const { return size_; }

 private:
  uint64_t Encrypt(uint64_t value) const;
  template <typename Mix>
  uint64_t Encrypt(uint64_t value, Mix mix) const;

  uint64_t size_;
  uint64_t key_;
  int half_bits_;
};

// A 64-bit mixing function, the finaliser of splitmix64: every input bit
// affects every output bit.
uint64_t Mix64(uint64_t value);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PERMUTATION_H_
