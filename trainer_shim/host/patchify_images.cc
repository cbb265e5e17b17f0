#include "trainer_shim/host/patchify_images.h"

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// Far above any model. With these limits no product below overflows 64 bits.
constexpr uint32_t kMaxPatch = 1024;
constexpr uint32_t kMaxMerge = 64;
constexpr uint64_t kMaxPatchesOfAnImage = uint64_t{1} << 31;

absl::Status CheckSide(absl::string_view side, uint32_t value, uint32_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "patch shape: ", side, " is ", value, ", wanted 1 to ", most));
}

absl::Status CheckShape(const PatchShape& shape) {
  absl::Status status = CheckSide("patch", shape.patch, kMaxPatch);
  status.Update(CheckSide("merge", shape.merge, kMaxMerge));
  status.Update(CheckSide("temporal_patch", shape.temporal_patch, kMaxMerge));
  return status;
}

absl::Status CheckGrid(const PatchifyImage& image, uint32_t merge) {
  const uint64_t patches = uint64_t{image.grid_h} * image.grid_w;
  if (patches > 0 && image.grid_h % merge == 0 && image.grid_w % merge == 0 &&
      patches <= kMaxPatchesOfAnImage) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("grid of ", image.grid_h, "x", image.grid_w,
                   " patches, wanted multiples of ", merge,
                   " above 0 and at most ", kMaxPatchesOfAnImage, " patches"));
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
  absl::Status status = CheckGrid(image, shape.merge);
  if (!status.ok()) return status;
  if (image.first_row != row) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_row is ", image.first_row, ", wanted ", row,
                     ", where the rows of the image before it end"));
  }
  const uint64_t patches = uint64_t{image.grid_h} * image.grid_w;
  status = CheckRange("byte", image.pixel_offset,
                      3 * patches * shape.patch * shape.patch, pixel_bytes);
  status.Update(CheckRange("row", row, patches, out_rows));
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
    rows += uint64_t{images[i].grid_h} * images[i].grid_w;
  }
  return rows;
}

}  // namespace ballast
