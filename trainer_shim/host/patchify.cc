#include "trainer_shim/host/patchify.h"

#include <algorithm>
#include <bit>

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

// One patch with its channels side by side: p rows of p pixels.
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
  const uint64_t rows = shape.RowsOf(crop.grid_h, crop.grid_w);
  std::fill_n(out, (rows - patches) * shape.row(), T());
}

CropSides Covered(uint32_t grid_h, uint32_t grid_w, const PatchShape& shape) {
  return {grid_h, grid_w, grid_h * shape.patch, grid_w * shape.patch};
}

// The nearest bfloat16, as a float.
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

}  // namespace ballast
