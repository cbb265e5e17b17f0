#include "trainer_shim/exchange_slices.h"

namespace ballast {

void SliceExchange(const ExchangePlan& plan, const uint8_t* block,
                   uint8_t* received, ExchangeSlices* slices) {
  slices->sends.clear();
  for (const PeerSlice& slice : plan.sends) {
    for (const ByteRun& range : {slice.records, slice.payload}) {
      slices->sends.push_back(
          {slice.peer, {block + range.offset, range.bytes}});
    }
  }
  slices->receives.clear();
  for (const PeerSlice& slice : plan.receives) {
    for (const ByteRun& range : {slice.records, slice.payload}) {
      slices->receives.push_back(
          {slice.peer, {received + range.offset, range.bytes}});
    }
  }
}

}  // namespace ballast
