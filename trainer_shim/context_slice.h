#ifndef BALLAST_TRAINER_SHIM_CONTEXT_SLICE_H_
#define BALLAST_TRAINER_SHIM_CONTEXT_SLICE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer_shim/host_device.h"

namespace ballast {

// One rank's zig-zag part of a packed sequence under context parallelism. Each
// sample's place is cut into 2*size equal pieces; rank r holds piece r followed
// by piece 2*size-1-r, which balances causal attention over the ranks. A rank's
// T/size tokens are its pieces of the first sample, then of the second, and so
// on, as with Transformer Engine's thd_get_partitioned_indices. Size 1 is the
// whole sequence.
struct ContextSlice {
  uint32_t size = 1;
  uint32_t rank = 0;
};

// Offset, from the start of a sample's place, of the rank's i-th token there.
// The rank has `local` tokens of the place, an even number unless size is 1.
BALLAST_HOST_DEVICE inline uint64_t ContextOffset(uint64_t i, uint64_t local,
                                                  ContextSlice slice) {
  if (slice.size == 1) return i;
  const uint64_t piece = local / 2;
  return i + piece * (i < piece ? slice.rank
                                : 2 * (uint64_t{slice.size} - 1) - slice.rank);
}

// OK if every sample padded to a multiple of `align` can be cut into equal
// pieces. INVALID_ARGUMENT: size is above 1 and `align` is not a multiple of
// 2*size.
absl::Status CheckContextAlign(uint32_t size, uint32_t align);

// Indices of the rank's tokens in the whole sequence, in order, for trainers
// that slice tensors of their own. `cu_seqlens_padded`: TextLayout's. Errors:
// INVALID_ARGUMENT (the rank does not exist; bounds that do not begin with 0,
// that decrease, or, with size above 1, that are not multiples of 2*size; no
// token).
absl::StatusOr<std::vector<int32_t>> ContextIndices(
    absl::Span<const int32_t> cu_seqlens_padded, ContextSlice slice);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CONTEXT_SLICE_H_
