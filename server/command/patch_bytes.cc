#include "server/command/patch_bytes.h"

#include <algorithm>
#include <cstddef>

namespace ballast {
namespace {

constexpr uint32_t kChannels = 3;

// The pixel in row `y` and column `x`.
const uint8_t* PixelAt(const RgbImage& image, uint32_t y, uint32_t x) {
  return image.pixels.data() + (size_t{y} * image.width + x) * kChannels;
}

// Appends `size` bytes to `out`, and returns where they begin.
uint8_t* Append(size_t size, std::vector<uint8_t>& out) {
  out.resize(out.size() + size);
  return out.data() + out.size() - size;
}

// The values of the patch in row `row` and column `column` of a crop: channel
// by channel, each `frames` times.
void AddPlanes(const RgbImage& crop, uint32_t row, uint32_t column,
               uint32_t patch, uint32_t frames, std::vector<uint8_t>& out) {
  const size_t plane = size_t{patch} * patch;
  uint8_t* to = Append(kChannels * frames * plane, out);
  for (uint32_t c = 0; c < kChannels; ++c) {
    uint8_t* const first = to;
    for (uint32_t y = 0; y < patch; ++y) {
      const uint8_t* from = PixelAt(crop, row * patch + y, column * patch) + c;
      for (uint32_t x = 0; x < patch; ++x) *to++ = from[x * kChannels];
    }
    for (uint32_t frame = 1; frame < frames; ++frame) {
      to = std::copy_n(first, plane, to);
    }
  }
}

// Likewise pixel by pixel.
void AddPixels(const RgbImage& crop, uint32_t row, uint32_t column,
               uint32_t patch, std::vector<uint8_t>& out) {
  const size_t line = size_t{patch} * kChannels;
  uint8_t* to = Append(patch * line, out);
  for (uint32_t y = 0; y < patch; ++y) {
    to = std::copy_n(PixelAt(crop, row * patch + y, column * patch), line, to);
  }
}

PatchBytes MergeOrder(const RgbImage& crop, const ImageFamily& family) {
  const uint32_t patch = family.patch;
  const uint32_t merge = family.merge;
  const uint32_t rows = crop.height / patch;
  const uint32_t columns = crop.width / patch;
  PatchBytes bytes;
  for (uint32_t top = 0; top < rows; top += merge) {
    for (uint32_t left = 0; left < columns; left += merge) {
      for (uint32_t i = 0; i < merge * merge; ++i) {
        AddPlanes(crop, top + i / merge, left + i % merge, patch,
                  family.temporal_patch, bytes.values);
      }
    }
  }
  bytes.shape = {uint64_t{rows} * columns,
                 uint64_t{kChannels} * family.temporal_patch * patch * patch};
  return bytes;
}

PatchBytes RasterOrder(const RgbImage& crop, const ImageFamily& family) {
  const uint64_t patch = family.patch;
  const uint32_t rows = crop.height / family.patch;
  const uint32_t columns = crop.width / family.patch;
  const bool by_pixel = family.layout == PatchLayout::kRasterPixels ||
                        family.layout == PatchLayout::kRasterBatch;
  PatchBytes bytes;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < columns; ++column) {
      if (by_pixel) {
        AddPixels(crop, row, column, family.patch, bytes.values);
      } else {
        AddPlanes(crop, row, column, family.patch, family.temporal_patch,
                  bytes.values);
      }
    }
  }
  const uint64_t patches = uint64_t{rows} * columns;
  const uint64_t size = kChannels * family.temporal_patch * patch * patch;
  switch (family.layout) {
    case PatchLayout::kKimi:
      bytes.shape = {patches, kChannels, patch, patch};
      return bytes;
    case PatchLayout::kRasterPixels:
      bytes.shape = {std::max<uint64_t>(patches, family.max_patches), size};
      break;
    case PatchLayout::kRasterBatch:
      bytes.shape = {1, std::max<uint64_t>(patches, family.max_patches), size};
      break;
    default:
      bytes.shape = {patches, size};
      return bytes;
  }
  bytes.values.resize(bytes.shape[bytes.shape.size() - 2] * size);
  return bytes;
}

// Each channel and row of patches' pixels runs through all crops.
PatchBytes Strips(absl::Span<const RgbImage> crops, uint32_t patch) {
  PatchBytes bytes;
  for (uint32_t c = 0; c < kChannels; ++c) {
    for (uint32_t y = 0; y < patch; ++y) {
      for (const RgbImage& crop : crops) {
        for (uint32_t top = y; top < crop.height; top += patch) {
          const uint8_t* from = PixelAt(crop, top, 0) + c;
          uint8_t* to = Append(crop.width, bytes.values);
          for (uint32_t x = 0; x < crop.width; ++x) to[x] = from[x * kChannels];
        }
      }
    }
  }
  bytes.shape = {1, kChannels, patch,
                 bytes.values.size() / (uint64_t{kChannels} * patch)};
  return bytes;
}

}  // namespace

PatchBytes ArrangePatches(absl::Span<const RgbImage> crops,
                          const ImageFamily& family) {
  switch (family.layout) {
    case PatchLayout::kMergeOrder:
      return MergeOrder(crops[0], family);
    case PatchLayout::kStrips:
      return Strips(crops, family.patch);
    default:
      return RasterOrder(crops[0], family);
  }
}

}  // namespace ballast
