#include "server/command/patch_bytes.h"

#include <algorithm>
#include <cstddef>

namespace ballast {
namespace {

constexpr uint32_t kChannels = 3;

uint8_t ValueAt(const RgbImage& image, uint32_t y, uint32_t x, uint32_t c) {
  return image.pixels[(size_t{y} * image.width + x) * kChannels + c];
}

// The values of the patch in row `row` and column `column` of a crop: channel
// by channel, each `frames` times.
void AddPlanes(const RgbImage& crop, uint32_t row, uint32_t column,
               uint32_t patch, uint32_t frames, std::vector<uint8_t>& out) {
  for (uint32_t c = 0; c < kChannels; ++c) {
    for (uint32_t frame = 0; frame < frames; ++frame) {
      for (uint32_t y = 0; y < patch; ++y) {
        for (uint32_t x = 0; x < patch; ++x) {
          out.push_back(ValueAt(crop, row * patch + y, column * patch + x, c));
        }
      }
    }
  }
}

// Likewise pixel by pixel.
void AddPixels(const RgbImage& crop, uint32_t row, uint32_t column,
               uint32_t patch, std::vector<uint8_t>& out) {
  for (uint32_t y = 0; y < patch; ++y) {
    for (uint32_t x = 0; x < patch; ++x) {
      for (uint32_t c = 0; c < kChannels; ++c) {
        out.push_back(ValueAt(crop, row * patch + y, column * patch + x, c));
      }
    }
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
          for (uint32_t x = 0; x < crop.width; ++x) {
            bytes.values.push_back(ValueAt(crop, top, x, c));
          }
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
