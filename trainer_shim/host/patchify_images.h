#ifndef BALLAST_TRAINER_SHIM_HOST_PATCHIFY_IMAGES_H_
#define BALLAST_TRAINER_SHIM_HOST_PATCHIFY_IMAGES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer_shim/host/patchify.h"

namespace ballast {

// One still image of a launch that cuts many into patches: a record of a table
// that host and device read alike.
struct PatchifyImage {
  uint64_t pixel_offset;  // bytes from the first pixel of the launch
  uint64_t first_row;     // row of pixel_values of its first patch
  uint32_t grid_h;        // sides in patches
  uint32_t grid_w;
};
static_assert(sizeof(PatchifyImage) == 24);

// Checks everything that a kernel takes for granted and gives the number of
// rows that `images` fill. Pure.
//
// `images` are in the order of their rows and leave no gap between them; the
// first may begin at any row. `pixel_bytes` and `out_rows` are the sizes of the
// memory that the images' pixels lie in and that the rows are written to.
//
// Errors: INVALID_ARGUMENT, naming the image, the value found and the one
// wanted: a shape with a side of 0 or out of all proportion, a side of a grid
// that is 0 or no multiple of the merge size, rows that overlap or leave a gap,
// pixels or rows that reach past their memory.
absl::StatusOr<uint64_t> CheckImages(absl::Span<const PatchifyImage> images,
                                     const PatchShape& shape,
                                     uint64_t pixel_bytes, uint64_t out_rows);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PATCHIFY_IMAGES_H_
