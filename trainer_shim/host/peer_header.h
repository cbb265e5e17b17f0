#ifndef BALLAST_TRAINER_SHIM_HOST_PEER_HEADER_H_
#define BALLAST_TRAINER_SHIM_HOST_PEER_HEADER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "trainer_shim/communicator.h"

namespace ballast {

// The slices between two ranks in one direction. Empty slices do not count.
struct SliceSizes {
  uint64_t slices = 0;
  uint64_t bytes = 0;
  uint64_t hash = 0;  // of the lengths in order

  void Add(uint64_t slice_bytes);
  friend bool operator==(const SliceSizes& a, const SliceSizes& b) {
    return a.slices == b.slices && a.bytes == b.bytes && a.hash == b.hash;
  }
};

// What a rank tells each peer before the slices of an exchange, so that ranks
// which disagree fail instead of waiting or writing past a slice. Sent as it
// lies in memory: all ranks run on little-endian machines of one kind.
struct PeerHeader {
  static constexpr uint64_t kMagic = 0x31'68'63'78'65'6c'6c'62;  // "bllexch1"

  uint64_t magic = 0;   // 0: nothing has arrived
  uint64_t run = 0;     // drawn by rank 0 for this group
  uint64_t number = 0;  // of the exchange, from 0
  uint32_t from = 0;
  uint32_t to = 0;
  SliceSizes sends;     // from -> to
  SliceSizes receives;  // what `from` expects of `to`
};
static_assert(sizeof(PeerHeader) == 80);

// The headers of rank `from` for every rank of a group of `size`; its own is
// unused. The peers of all slices exist.
std::vector<PeerHeader> HeadersOf(uint64_t run, uint64_t number, uint32_t from,
                                  uint32_t size,
                                  absl::Span<const SendSlice> sends,
                                  absl::Span<const ReceiveSlice> receives);

// Whether `got`, from the connection to a peer, fits `sent`, which went to that
// peer. Errors: FAILED_PRECONDITION (the other side is not that rank of this
// run), INVALID_ARGUMENT (the two are at different exchanges, or lengths or
// counts differ; names both ranks).
absl::Status CheckHeader(const PeerHeader& got, const PeerHeader& sent);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PEER_HEADER_H_
