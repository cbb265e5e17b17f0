#include "trainer_shim/patchify.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// One channel of one patch: p*p values from every third byte of p rows.
template <typename T>
T* CopyPlane(const uint8_t* corner, uint64_t stride, uint32_t patch,
             const std::array<T, 256>& values, T* out) {
  for (uint32_t y = 0; y < patch; ++y) {
    const uint8_t* pixel = corner + y * stride;
    for (uint32_t x = 0; x < patch; ++x) *out++ = values[pixel[3 * x]];
  }
  return out;
}

// One patch with interleaved channels: p rows of p pixels.
template <typename T, typename Values>
T* CopyPixels(const uint8_t* corner, uint64_t stride, uint32_t patch,
              const Values& values, T* out) {
  for (uint32_t y = 0; y < patch; ++y) {
    const uint8_t* pixel = corner + y * stride;
    for (uint32_t x = 0; x < patch; ++x, pixel += 3) {
      for (int c = 0; c < 3; ++c) *out++ = values(c)[pixel[c]];
    }
  }
  return out;
}

// `values(c)`: table from the bytes of channel c to their values.
template <typename T, typename Values>
void TileAs(const uint8_t* rgb, const CropSides& crop, const PatchShape& shape,
            const Values& values, T* out) {
  for (int c = 0; c < 3; ++c) {
    const std::array<T, 256>& of = values(c);
    for (uint32_t y = 0; y < crop.height; ++y) {
      const uint8_t* pixel = rgb + uint64_t{3} * crop.width * y + c;
      for (uint32_t x = 0; x < crop.width; ++x) *out++ = of[pixel[3 * x]];
      out = std::fill_n(out, shape.tile_w - crop.width, T());
    }
    const uint64_t below = shape.tile_h - crop.height;
    out = std::fill_n(out, below * shape.tile_w, T());
  }
}

template <typename T, typename Values>
void PatchifyAs(const uint8_t* rgb, const FrameRun& frames,
                const CropSides& crop, const PatchShape& shape, Values values,
                T* out) {
  if (shape.tiles()) return TileAs(rgb, crop, shape, values, out);
  const uint32_t p = shape.patch;
  const uint32_t m = shape.merge;
  const uint64_t stride = uint64_t{3} * crop.width;
  const uint64_t plane = uint64_t{p} * p;
  // Rows of the output are written in order: blocks of m*m patches, raster over
  // blocks, raster within a block.
  for (uint32_t block_h = 0; block_h < crop.grid_h; block_h += m) {
    for (uint32_t block_w = 0; block_w < crop.grid_w; block_w += m) {
      for (uint32_t k = 0; k < m * m; ++k) {
        const uint64_t gh = block_h + k / m;
        const uint64_t gw = block_w + k % m;
        const uint8_t* corner = rgb + gh * p * stride + gw * p * 3;
        if (shape.channels_last) {
          out = CopyPixels(corner, stride, p, values, out);
          continue;
        }
        for (int c = 0; c < 3; ++c) {
          for (uint32_t tp = 0; tp < shape.temporal_patch; ++tp) {
            out = tp < frames.count ? CopyPlane(corner + tp * frames.stride + c,
                                                stride, p, values(c), out)
                                    : std::copy_n(out - plane, plane, out);
          }
        }
      }
    }
  }
  const uint64_t patches = uint64_t{crop.grid_h} * crop.grid_w;
  const uint64_t rows = shape.GetRows(crop.grid_h, crop.grid_w);
  std::fill_n(out, (rows - patches) * shape.row(), T());
}

CropSides Covered(uint32_t grid_h, uint32_t grid_w, const PatchShape& shape) {
  return {grid_h, grid_w, grid_h * shape.patch, grid_w * shape.patch};
}

// Rounds to the nearest bfloat16, as a float.
float Rounded(float value) {
  return std::bit_cast<float>(uint32_t{ToBfloat16(value)} << 16);
}

float Normalise(int byte, double mean, double std, Normalisation formula) {
  const float mean32 = static_cast<float>(mean);
  const float std32 = static_cast<float>(std);
  if (formula == Normalisation::kTorchvision) {
    return (static_cast<float>(byte) - mean32 * 255.0f) / (std32 * 255.0f);
  }
  if (formula == Normalisation::kBfloat16) {
    const float scaled =
        Rounded(static_cast<float>(byte) * static_cast<float>(1 / 255.0));
    return Rounded(Rounded(scaled - Rounded(mean32)) / Rounded(std32));
  }
  return (static_cast<float>(byte / 255.0) - mean32) / std32;
}

}  // namespace

uint16_t ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Adds half a unit of the kept bits, minus one if the lowest kept bit is
  // even, so that ties go to even.
  return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}

NormaliseTable::NormaliseTable(const std::array<double, 3>& mean,
                               const std::array<double, 3>& std,
                               Normalisation formula) {
  for (int c = 0; c < 3; ++c) {
    for (int byte = 0; byte < 256; ++byte) {
      floats_[c][byte] = Normalise(byte, mean[c], std[c], formula);
      bfloat16s_[c][byte] = ToBfloat16(floats_[c][byte]);
    }
  }
}

void Patchify(const uint8_t* rgb, const FrameRun& frames, const CropSides& crop,
              const PatchShape& shape, const NormaliseTable& table,
              float* out) {
  PatchifyAs(
      rgb, frames, crop,
      shape, [&](int c) -> const auto& { return table.floats(c); }, out);
}

void PatchifyBfloat16(const uint8_t* rgb, const FrameRun& frames,
                      const CropSides& crop, const PatchShape& shape,
                      const NormaliseTable& table, uint16_t* out) {
  PatchifyAs(
      rgb, frames, crop,
      shape, [&](int c) -> const auto& { return table.bfloat16s(c); }, out);
}

void Patchify(const uint8_t* rgb, const CropSides& crop,
              const PatchShape& shape, const NormaliseTable& table,
              float* out) {
  Patchify(rgb, FrameRun(), crop, shape, table, out);
}

void PatchifyBfloat16(const uint8_t* rgb, const CropSides& crop,
                      const PatchShape& shape, const NormaliseTable& table,
                      uint16_t* out) {
  PatchifyBfloat16(rgb, FrameRun(), crop, shape, table, out);
}

void Patchify(const uint8_t* rgb, uint32_t grid_h, uint32_t grid_w,
              const PatchShape& shape, const NormaliseTable& table,
              float* out) {
  Patchify(rgb, Covered(grid_h, grid_w, shape), shape, table, out);
}

void PatchifyBfloat16(const uint8_t* rgb, uint32_t grid_h, uint32_t grid_w,
                      const PatchShape& shape, const NormaliseTable& table,
                      uint16_t* out) {
  PatchifyBfloat16(rgb, Covered(grid_h, grid_w, shape), shape, table, out);
}

namespace {

// Far above any model. With these limits no product below overflows 64 bits.
constexpr uint32_t kMaxPatch = 1024;
constexpr uint32_t kMaxMerge = 64;
constexpr uint32_t kMaxTile = 1 << 16;
constexpr uint32_t kMaxSide = 1 << 30;  // pixels
constexpr uint64_t kMaxPatchesOfAnImage = uint64_t{1} << 31;

absl::Status CheckSide(absl::string_view side, uint32_t value, uint32_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "patch shape: ", side, " is ", value, ", wanted 1 to ", most));
}

absl::Status CheckShape(const PatchShape& shape) {
  if (shape.tiles()) {
    absl::Status status = CheckSide("tile_h", shape.tile_h, kMaxTile);
    status.Update(CheckSide("tile_w", shape.tile_w, kMaxTile));
    return status;
  }
  absl::Status status = CheckSide("patch", shape.patch, kMaxPatch);
  status.Update(CheckSide("merge", shape.merge, kMaxMerge));
  status.Update(CheckSide("temporal_patch", shape.temporal_patch, kMaxMerge));
  if (status.ok() && shape.channels_last && shape.temporal_patch != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("patch shape: temporal_patch is ", shape.temporal_patch,
                     ", wanted 1 with channels_last"));
  }
  return status;
}

absl::Status CheckTile(const PatchifyImage& image, const PatchShape& shape) {
  if (image.height > 0 && image.width > 0 && image.height <= shape.tile_h &&
      image.width <= shape.tile_w) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "sides of ", image.height, "x", image.width, " pixels, wanted 1x1 to ",
      shape.tile_h, "x", shape.tile_w, ", the tile"));
}

absl::Status CheckGrid(const PatchifyImage& image, const PatchShape& shape) {
  const uint64_t patches = uint64_t{image.grid_h} * image.grid_w;
  const uint64_t most =
      shape.padded_rows != 0 ? shape.padded_rows : kMaxPatchesOfAnImage;
  if (patches == 0 || image.grid_h % shape.merge != 0 ||
      image.grid_w % shape.merge != 0 || patches > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("grid of ", image.grid_h, "x", image.grid_w,
                     " patches, wanted multiples of ", shape.merge,
                     " above 0 and at most ", most, " patches"));
  }
  if (image.height < uint64_t{image.grid_h} * shape.patch ||
      image.width < uint64_t{image.grid_w} * shape.patch ||
      std::max(image.height, image.width) > kMaxSide) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sides of ", image.height, "x", image.width,
        " pixels, wanted at least ", image.grid_h, "x", image.grid_w,
        " patches of ", shape.patch, " pixels, and at most ", kMaxSide));
  }
  return absl::OkStatus();
}

// Number of frames that a record may have.
uint32_t MostFrames(const PatchShape& shape) {
  return shape.tiles() || shape.padded_rows != 0 ? 1 : shape.temporal_patch;
}

absl::Status CheckFrames(const PatchifyImage& image, const PatchShape& shape) {
  const uint32_t most = MostFrames(shape);
  if (image.frames < 1 || image.frames > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(image.frames, " frames, wanted 1 to ", most,
                     ", the frames of a patch"));
  }
  const uint64_t bytes = uint64_t{3} * image.height * image.width;
  if (image.frames > 1 && image.frame_stride < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("frames ", image.frame_stride,
                     " bytes apart, wanted at least ", bytes));
  }
  return absl::OkStatus();
}

// Checks that [first, first + size) is within [0, all), without overflow.
absl::Status CheckRange(absl::string_view what, uint64_t first, uint64_t size,
                        uint64_t all) {
  if (first <= all && size <= all - first) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " ", first, " and the ", size, " that follow, of ", all));
}

absl::Status CheckImage(const PatchifyImage& image, const PatchShape& shape,
                        uint64_t row, uint64_t pixel_bytes, uint64_t out_rows) {
  absl::Status status =
      shape.tiles() ? CheckTile(image, shape) : CheckGrid(image, shape);
  status.Update(CheckFrames(image, shape));
  if (!status.ok()) return status;
  if (image.first_row != row) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_row is ", image.first_row, ", wanted ", row,
                     ", where the rows of the image before it end"));
  }
  status = CheckRange("byte", image.pixel_offset,
                      uint64_t{image.frames - 1} * image.frame_stride +
                          uint64_t{3} * image.height * image.width,
                      pixel_bytes);
  status.Update(CheckRange(
      "row", row, shape.GetRows(image.grid_h, image.grid_w), out_rows));
  return status;
}

}  // namespace

absl::StatusOr<uint64_t> CheckImages(absl::Span<const PatchifyImage> images,
                                     const PatchShape& shape,
                                     uint64_t pixel_bytes, uint64_t out_rows) {
  const absl::Status checked = CheckShape(shape);
  if (!checked.ok()) return checked;
  uint64_t rows = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    const absl::Status status = CheckImage(
        images[i], shape, images[0].first_row + rows, pixel_bytes, out_rows);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "image ", i, " of ", images.size(), ": ", status.message()));
    }
    rows += shape.GetRows(images[i].grid_h, images[i].grid_w);
  }
  return rows;
}

}  // namespace ballast
