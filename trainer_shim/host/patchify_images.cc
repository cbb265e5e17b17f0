#include "trainer_shim/host/patchify_images.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ballast {
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
    return absl::InvalidArgumentError(
        absl::StrCat("sides of ", image.height, "x", image.width,
                     " pixels, wanted those of ", image.grid_h, "x",
                     image.grid_w, " patches of ", shape.patch,
                     " pixels, or more, and at most ", kMaxSide));
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
    return absl::InvalidArgumentError(absl::StrCat(
        image.frames, " frames, wanted 1 to ", most, ", those of a patch"));
  }
  const uint64_t bytes = uint64_t{3} * image.height * image.width;
  if (image.frames > 1 && image.frame_stride < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("frames ", image.frame_stride,
                     " bytes apart, wanted at least ", bytes));
  }
  return absl::OkStatus();
}

// Checks that [first, first + size) lies within [0, all), without overflow.
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
  status.Update(CheckRange("row", row, shape.RowsOf(image.grid_h, image.grid_w),
                           out_rows));
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
    rows += shape.RowsOf(images[i].grid_h, images[i].grid_w);
  }
  return rows;
}

}  // namespace ballast
