#ifndef BALLAST_SERVER_MEDIA_IMAGE_CROP_MAKER_H_
#define BALLAST_SERVER_MEDIA_IMAGE_CROP_MAKER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/image/resample_weights.h"
#include "server/media/image/image.h"
#include "server/media/image/row_sink.h"
#include "server/media/image/strip_resampler.h"
#include "server/media/image_plan/tile_grid.h"
#include "server/sample/image_header.h"

namespace ballast {

// An upper bound of the memory that MakeCrops takes for an image of this plan.
uint64_t CropBytes(const ImagePlan& plan, const Resampling& resampling);

// The crops of a decoded image, in the plan's order, bit for bit as the
// family's processor makes them with the library of `resampling`. `plan` is for
// an image of this size. Holds all canvases of the plan at the same time: three
// bytes a pixel. Errors: a data fault (a canvas of more than kMaxImagePixels);
// INVALID_ARGUMENT (`plan` is for another size); otherwise as Resize.
absl::StatusOr<std::vector<RgbImage>> MakeCrops(const RgbImage& image,
                                                const ImagePlan& plan,
                                                const Resampling& resampling);

// Decoded RGB in memory of another owner: rows of width*3 bytes, `stride` bytes
// apart.
struct RgbRows {
  const uint8_t* rows;
  uint32_t stride;
  uint32_t width;
  uint32_t height;
};

// Turns and resizes pictures, one after the other, in one pass. Reuses its
// buffers and tables, so that a size seen before allocates nothing.
// Thread-compatible.
class FrameResizer {
 public:
  // `max_memory`: limit of working memory for one picture.
  explicit FrameResizer(uint64_t max_memory = uint64_t{1} << 30)
      : arena_(max_memory, kKeptMemory) {}

  // Applies `orientation`, then resizes to width x height bit for bit as the
  // library of `resampling` does. `out` holds height*width*3 bytes. Errors:
  // INVALID_ARGUMENT (a side of 0, the size of `out`), RESOURCE_EXHAUSTED
  // (working memory).
  absl::Status Resize(const RgbRows& picture, Orientation orientation,
                      const Resampling& resampling, uint32_t width,
                      uint32_t height, absl::Span<uint8_t> out);

 private:
  static constexpr uint64_t kKeptMemory = uint64_t{64} << 20;

  ScratchArena arena_;
  TableCache tables_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_CROP_MAKER_H_
