#ifndef BALLAST_TRAINER_SHIM_CONTEXT_SLICE_H_
#define BALLAST_TRAINER_SHIM_CONTEXT_SLICE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#ifdef __CUDACC__
#define BALLAST_HOST_DEVICE __host__ __device__
#else
#define BALLAST_HOST_DEVICE
#endif

namespace ballast {

// One rank's part of a packed sequence under context parallelism, in zig-zag:
// each sample's place is cut into 2*size equal pieces, of which rank r holds
// piece r and, after it, piece 2*size-1-r, so that all ranks have equally much
// of a causal attention to do. A rank's tokens are its pieces of the first
// sample, then of the second, and so on: T/size of them. What
// thd_get_partitioned_indices of Transformer Engine gives. Size 1 is the whole.
struct ContextSlice {
  uint32_t size = 1;
  uint32_t rank = 0;
};

// Which token of a sample's place, counted from its start, is the rank's i-th
// of it. The rank has `local` tokens of the place, an even number unless size
// is 1.
BALLAST_HOST_DEVICE inline uint64_t ContextOffset(uint64_t i, uint64_t local,
                                                  ContextSlice slice) {
  if (slice.size == 1) return i;
  const uint64_t piece = local / 2;
  return i + piece * (i < piece ? slice.rank
                                : 2 * (uint64_t{slice.size} - 1) - slice.rank);
}

// OK where every sample that is padded to a multiple of `align` falls into
// pieces. INVALID_ARGUMENT: `align` is no multiple of 2*size, though size is
// above 1.
absl::Status CheckContextAlign(uint32_t size, uint32_t align);

// The places in the whole sequence of the rank's tokens, in order, for trainers
// that cut tensors of their own. `cu_seqlens_padded`: TextLayout's.
// Errors: INVALID_ARGUMENT (a rank that does not exist; bounds that do not
// begin with 0, fall, or are no multiples of 2*size with size above 1; no
// token).
absl::StatusOr<std::vector<int32_t>> ContextIndices(
    absl::Span<const int32_t> cu_seqlens_padded, ContextSlice slice);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CONTEXT_SLICE_H_
