#ifndef BALLAST_CLIENT_BLOCK_CHECK_H_
#define BALLAST_CLIENT_BLOCK_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/batch_fetcher.h"

namespace ballast {

// "step 3 micro-batch 1"
std::string DescribeBlock(uint64_t step, uint32_t micro_batch);

// Checks that the header of `block` is that of the micro-batch and the split
// that `wanted` begins with, and returns the number of micro-batches of the
// step. Errors, which begin with `where`: INTERNAL (the server is at fault);
// UNAVAILABLE (the block was overwritten).
absl::StatusOr<uint32_t> CheckBlockHeader(const FetchedBlock& block,
                                          const FetchRequest& wanted,
                                          absl::string_view where);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BLOCK_CHECK_H_
