#ifndef BALLAST_TRAINER_SHIM_THD_LAYOUT_H_
#define BALLAST_TRAINER_SHIM_THD_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "trainer_shim/pixel_arithmetic.h"

namespace ballast {

// The places of samples in a packed batch (docs/thd_format.md). Plain values
// and pure functions.

// Tokens of n samples, one after the other in one row of length T. Each sample
// is padded to a multiple of the alignment.
struct TextLayout {
  // [n+1]: sums of real lengths; differences are samples' lengths.
  std::vector<int32_t> cu_seqlens;
  // [n+1]: sums of padded lengths: where each sample begins; ends with T.
  std::vector<int32_t> cu_seqlens_padded;
  // Longest padded length.
  int32_t max_seqlen = 0;

  int64_t tokens() const { return cu_seqlens.back(); }                // real
  int64_t padded_tokens() const { return cu_seqlens_padded.back(); }  // T

  // Checks that both arrays begin with 0 and rise, no sample is longer than its
  // place, every place's length is a multiple of `align`, and max_seqlen is the
  // longest. Errors: INTERNAL naming the entry.
  absl::Status Validate(uint32_t align) const;
};

// Lays out samples. `tokens`: real length of each sample, in packing order.
// `align`: at least 1. Errors: INVALID_ARGUMENT (no sample, a sample without
// tokens, align 0, T over 2^31-1).
absl::StatusOr<TextLayout> LayOutText(absl::Span<const uint32_t> tokens,
                                      uint32_t align);

// Lays out samples as rows of `row_length` tokens (packing.mode `padded`): each
// sample's place begins at a multiple of it, so that T / row_length rows of one
// tensor are the samples. Errors: as LayOutText; INVALID_ARGUMENT (a sample
// longer than a row).
absl::StatusOr<TextLayout> LayOutRows(absl::Span<const uint32_t> tokens,
                                      uint64_t row_length);

// Patches of n images, one after the other in rows of pixel_values.
struct VisionLayout {
  // [n, 3]: temporal, height, width of each image, in patches.
  std::vector<int64_t> image_grid_thw;
  // [n+1]: row in which each image begins; ends with the number of patches.
  std::vector<int64_t> patch_offsets;
  // Attention segments: one of h*w patches for each temporal step of each
  // image; begins with 0 and ends with the number of patches.
  std::vector<int32_t> cu_seqlens;
  // Longest segment; 0 without images.
  int32_t max_seqlen = 0;

  int64_t num_images() const { return patch_offsets.size() - 1; }
  int64_t patches() const { return patch_offsets.back(); }

  // Checks that all arrays agree with image_grid_thw. Errors: INTERNAL naming
  // the entry.
  absl::Status Validate() const;
};

// Lays out images, given in packing order; only their grids are read. `images`
// may be empty. Errors: INVALID_ARGUMENT (a grid with a side of 0, more than
// 2^31-1 patches).
absl::StatusOr<VisionLayout> LayOutVision(absl::Span<const ImageRecord> images);

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
// that slice their own tensors. `cu_seqlens_padded`: TextLayout's. Errors:
// INVALID_ARGUMENT (the rank does not exist; bounds that do not begin with 0,
// that decrease, or, with size above 1, that are not multiples of 2*size; no
// token).
absl::StatusOr<std::vector<int32_t>> ContextIndices(
    absl::Span<const int32_t> cu_seqlens_padded, ContextSlice slice);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_THD_LAYOUT_H_
