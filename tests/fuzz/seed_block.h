#ifndef BALLAST_TESTS_FUZZ_SEED_BLOCK_H_
#define BALLAST_TESTS_FUZZ_SEED_BLOCK_H_

#include "proto/block/block_plan.h"

namespace ballast {

// The plan of block_fuzz's seed, a vision block of a few samples with and
// without images.
BlockPlan SeedPlan();

}  // namespace ballast

#endif  // BALLAST_TESTS_FUZZ_SEED_BLOCK_H_
