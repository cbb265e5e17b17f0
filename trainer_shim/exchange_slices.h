#ifndef BALLAST_TRAINER_SHIM_EXCHANGE_SLICES_H_
#define BALLAST_TRAINER_SHIM_EXCHANGE_SLICES_H_

#include <cstdint>
#include <vector>

#include "trainer_shim/communicator.h"
#include "trainer_shim/exchange_plan.h"

namespace ballast {

// The slices that Communicator::AllToAllV moves for one exchange.
struct ExchangeSlices {
  std::vector<SendSlice> sends;
  std::vector<ReceiveSlice> receives;
};

// Replaces `slices` with the slices of `plan`: for each peer its records, then
// its payload. `block` and `received` are the rank's block and its receive
// buffer, in host or in device memory; neither is touched.
void SliceExchange(const ExchangePlan& plan, const uint8_t* block,
                   uint8_t* received, ExchangeSlices* slices);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_EXCHANGE_SLICES_H_
