#ifndef BALLAST_TRAINER_SHIM_PATCHIFY_H_
#define BALLAST_TRAINER_SHIM_PATCHIFY_H_

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ballast {

// The type of pixel_values; bfloat16 as its bits.
enum class PixelType { kFloat32, kBfloat16 };

// The nearest bfloat16 of a finite float, ties to even, as its 16 bits.
uint16_t ToBfloat16(float value);

// The formulas by which Hugging Face's processors normalise; their results
// differ in the last bits.
enum class Normalisation {
  // Qwen2VLImageProcessor: (x - 255*mean) / (255*std), all float32.
  kTorchvision,
  // Qwen2VLImageProcessorPil: float32(float64(x) / 255), then (x - mean) / std
  // in float32.
  kPil,
  // Llama4ImageProcessor: as kPil, with each intermediate result, mean and std
  // rounded to bfloat16.
  kBfloat16,
};

// The normalised value of every byte. Pixels are 8-bit, so normalising is one
// look-up and exact by construction.
class NormaliseTable {
 public:
  // `mean` and `std` are of RGB scaled to [0,1]; no std is 0.
  NormaliseTable(const std::array<double, 3>& mean,
                 const std::array<double, 3>& std, Normalisation formula);

  const std::array<float, 256>& floats(int channel) const {
    return floats_[channel];
  }
  const std::array<uint16_t, 256>& bfloat16s(int channel) const {
    return bfloat16s_[channel];
  }

 private:
  std::array<std::array<float, 256>, 3> floats_;
  std::array<std::array<uint16_t, 256>, 3> bfloat16s_;
};

// The form in which a crop becomes rows of pixel_values, as the model's
// processor makes them:
//
//   merge order     {patch, merge, temporal}           Qwen, GLM
//   raster order    {patch, 1, temporal}               RADIO, Kimi, HunyuanVL
//   padded patches  {patch, 1, 1, true, max_patches}   SigLIP 2 NaFlex, Gemma 4
//   tiles           tile_h, tile_w: one row, [3, tile_h, tile_w]
struct PatchShape {
  uint32_t patch = 14;          // p: pixels per side
  uint32_t merge = 2;           // m: patches per side that become one token
  uint32_t temporal_patch = 2;  // Tp: frames that a patch spans
  // The values of a row are in the order (y, x, c) instead of (c, tp, y, x);
  // temporal_patch is 1.
  bool channels_last = false;
  // Rows of each crop; rows after its patches are zeros. 0: a crop has as many
  // rows as patches.
  uint32_t padded_rows = 0;
  // Not 0: a row is a whole crop, in the corner of a tile of zeros. The fields
  // above are not read.
  uint32_t tile_h = 0;
  uint32_t tile_w = 0;

  bool tiles() const { return tile_h != 0; }
  // Values of one row of pixel_values.
  uint64_t row() const {
    return tiles() ? uint64_t{3} * tile_h * tile_w
                   : uint64_t{3} * temporal_patch * patch * patch;
  }
  // Rows of a crop of this grid.
  uint64_t GetRows(uint32_t grid_h, uint32_t grid_w) const {
    if (tiles()) return 1;
    return padded_rows != 0 ? padded_rows : uint64_t{grid_h} * grid_w;
  }

  friend bool operator==(const PatchShape&, const PatchShape&) = default;
};

// Sides of a crop: in patches, and in pixels, at least as many as the patches
// cover. Pixels that no patch covers are part of tiles only.
struct CropSides {
  uint32_t grid_h = 0;
  uint32_t grid_w = 0;
  uint32_t height = 0;
  uint32_t width = 0;
};

// The frames of one temporal patch, equal in size, `stride` bytes apart: at
// most temporal_patch frames of a video, or one still image. The last is
// repeated until there are temporal_patch.
struct FrameRun {
  uint32_t count = 1;
  uint64_t stride = 0;
};

// Normalises one still crop and cuts it into patches, in the order of
// Qwen2VLImageProcessor:
//
//   row of patch (gh, gw):        ((gh/m)*(W/m) + gw/m)*m*m + (gh%m)*m + gw%m
//   column of value (c, tp, y, x): ((c*Tp + tp)*p + y)*p + x
//                 or with channels_last:     (y*p + x)*3 + c
//
// or, for tiles, places its values (c, y, x) at (c*tile_h + y)*tile_w + x.
//
// `rgb`: [height, width, 3] 8-bit. `out`: [GetRows(grid), row()] values, all of
// which are written. Both sides of the grid are multiples of m, a crop has at
// most padded_rows patches if that is not 0, and is no larger than a tile.
// Sizes are not checked.
void Patchify(const uint8_t* rgb, const CropSides& crop,
              const PatchShape& shape, const NormaliseTable& table, float* out);
void PatchifyBfloat16(const uint8_t* rgb, const CropSides& crop,
                      const PatchShape& shape, const NormaliseTable& table,
                      uint16_t* out);

// Likewise, for one temporal patch of a video, in the order of
// Qwen2VLVideoProcessor: frame tp of `frames` has the columns (c, tp, y, x).
// `rgb` is the first frame. Tiles and channels_last have one frame.
void Patchify(const uint8_t* rgb, const FrameRun& frames, const CropSides& crop,
              const PatchShape& shape, const NormaliseTable& table, float* out);
void PatchifyBfloat16(const uint8_t* rgb, const FrameRun& frames,
                      const CropSides& crop, const PatchShape& shape,
                      const NormaliseTable& table, uint16_t* out);

// Likewise, for a crop that its patches cover.
void Patchify(const uint8_t* rgb, uint32_t grid_h, uint32_t grid_w,
              const PatchShape& shape, const NormaliseTable& table, float* out);
void PatchifyBfloat16(const uint8_t* rgb, uint32_t grid_h, uint32_t grid_w,
                      const PatchShape& shape, const NormaliseTable& table,
                      uint16_t* out);

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
// Errors: INVALID_ARGUMENT, naming the image, the value found and the value
// wanted: a side of the shape is 0 or absurdly large, a side of a grid is 0 or
// not a multiple of the merge size, an image has more patches than padded_rows
// or its pixels, or is larger than a tile, no frame, more frames than a patch
// spans or frames that overlap, rows overlap or leave a gap, pixels or rows
// reach past their memory.
absl::StatusOr<uint64_t> CheckImages(absl::Span<const PatchifyImage> images,
                                     const PatchShape& shape,
                                     uint64_t pixel_bytes, uint64_t out_rows);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_PATCHIFY_H_
