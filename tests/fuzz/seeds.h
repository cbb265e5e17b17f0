#ifndef BALLAST_TESTS_FUZZ_SEEDS_H_
#define BALLAST_TESTS_FUZZ_SEEDS_H_

#include "proto/block/block_plan.h"

namespace ballast {

// The plan of block_fuzz's seed, a vision block of a few samples with and
// without images.
BlockPlan SeedPlan();

// Values shared by pull_request_fuzz's server and its seed: the fingerprint's
// hash and the arena's nonce.
inline constexpr char kSeedHash[] = "00112233445566778899aabbccddeeff";
inline constexpr char kSeedNonce[] = "0123456789abcdef";

}  // namespace ballast

#endif  // BALLAST_TESTS_FUZZ_SEEDS_H_
