#ifndef BALLAST_TRAINER_SHIM_HOST_PATCHIFY_IMAGES_H_
#define BALLAST_TRAINER_SHIM_HOST_PATCHIFY_IMAGES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer_shim/host/patchify.h"

namespace ballast {

// One still crop, or one temporal patch of a video, of a launch that patchifies
// many: a table record that host and device both read.
struct PatchifyImage {
  uint64_t pixel_offset;  // bytes from the first pixel of the launch
  uint64_t first_row;     // row of pixel_values of its first patch
  uint32_t grid_h;        // sides in patches
  uint32_t grid_w;
  uint32_t height;  // sides in pixels
  uint32_t width;
  // As FrameRun: the number of frames, and the bytes from one to the next.
  uint32_t frames = 1;
  uint32_t frame_stride = 0;
};
static_assert(sizeof(PatchifyImage) == 40);

// Checks everything that a kernel relies on and returns the number of rows that
// `images` fill. Pure.
//
// `images` are in the order of their rows, without gaps; the first may begin at
// any row. `pixel_bytes` and `out_rows` are the sizes of the memory that holds
// the images' pixels and of the memory that the rows are written to.
//
// Errors: INVALID_ARGUMENT, naming the image, the value found and the one
// wanted: a side of the shape is 0 or absurdly large, a side of a grid is 0 or
// not a multiple of the merge size, an image has more patches than padded_rows
// or its pixels, or is larger than a tile, no frame, more frames than a patch
// spans or frames that overlap, rows overlap or leave a gap, pixels or rows
// reach past their memory.
absl::StatusOr<uint64_t> CheckImages(absl::Span<const PatchifyImage> images,
                                     const PatchShape& shape,
                                     uint64_t pixel_bytes, uint64_t out_rows);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PATCHIFY_IMAGES_H_
