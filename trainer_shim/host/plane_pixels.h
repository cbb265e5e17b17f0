#ifndef BALLAST_TRAINER_SHIM_HOST_PLANE_PIXELS_H_
#define BALLAST_TRAINER_SHIM_HOST_PLANE_PIXELS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "trainer_shim/resample_plan.h"

namespace ballast {

// The kernels of trainer_shim/cuda/plane_kernels.h on the CPU, and their
// oracle. Together they make the same pixels as the server's decode and resize.

// Row `y` of a picture as 8-bit RGB, `image.width` pixels: upsampled chroma and
// colours.
void PlaneRowToRgb(const ResampleImage& image, const uint8_t* planes,
                   uint32_t y, uint8_t* rgb);

// The horizontal pass over every row of every image. `narrow`: the plan's
// narrow_bytes. `row`: 3 * the plan's most_width bytes, for a row of pixels.
void NarrowRows(const ResamplePlan& plan, const uint8_t* planes,
                absl::Span<uint8_t> row, uint8_t* narrow);

// The vertical pass, to each image's pixels in `out`.
void ShortenColumns(const ResamplePlan& plan, const uint8_t* narrow,
                    uint8_t* out);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PLANE_PIXELS_H_
