#include "tests/server/image/reference_resize.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/image/model_resampling.h"
#include "proto/image/resample_weights.h"

namespace ballast {
namespace {

constexpr size_t kPixelBytes = 3;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

void ResampleRow(const uint8_t* source, const ResampleWeights& horizontal,
                 uint8_t* out) {
  for (const ResampleTaps& taps : horizontal.taps) {
    const int32_t* weights = horizontal.weights.data() + taps.weights;
    const uint8_t* pixel = source + size_t{taps.first} * kPixelBytes;
    int32_t r = kHalf, g = kHalf, b = kHalf;
    for (uint32_t i = 0; i < taps.count; ++i, pixel += kPixelBytes) {
      r += pixel[0] * weights[i];
      g += pixel[1] * weights[i];
      b += pixel[2] * weights[i];
    }
    out[0] = ClipWeightedSum(r);
    out[1] = ClipWeightedSum(g);
    out[2] = ClipWeightedSum(b);
    out += kPixelBytes;
  }
}

// Computes one output row from `taps.count` rows of `stride` bytes, the first
// at `rows`.
void ResampleColumns(const uint8_t* rows, size_t stride,
                     const ResampleTaps& taps, const int32_t* weights,
                     std::vector<int32_t>& sums, uint8_t* out) {
  sums.assign(stride, kHalf);
  for (uint32_t i = 0; i < taps.count; ++i, rows += stride) {
    for (size_t x = 0; x < stride; ++x) sums[x] += rows[x] * weights[i];
  }
  for (size_t x = 0; x < stride; ++x) out[x] = ClipWeightedSum(sums[x]);
}

}  // namespace

absl::Status ReferenceResize(const RgbImage& source,
                             const Resampling& resampling, uint32_t width,
                             uint32_t height, absl::Span<uint8_t> out) {
  if (width == 0 || height == 0 || source.width == 0 || source.height == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("resizing an image of ", source.width, "x", source.height,
                     " pixels to ", width, "x", height));
  }
  const size_t source_stride = size_t{source.width} * kPixelBytes;
  const size_t stride = size_t{width} * kPixelBytes;
  if (source.pixels.size() != source_stride * source.height ||
      out.size() != stride * height) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resizing ", source.width, "x", source.height, " pixels in ",
        source.pixels.size(), " bytes to ", width, "x", height, " pixels in ",
        out.size(), " bytes; a pixel takes ", kPixelBytes));
  }
  if (width == source.width && height == source.height) {
    std::memcpy(out.data(), source.pixels.data(), out.size());
    return absl::OkStatus();
  }
  if (width != source.width &&
      IsResizedAlongYFirst(resampling.library, source.width, source.height,
                           width, height)) {
    RgbImage narrow{source.width, height, {}};
    narrow.pixels.resize(source_stride * height);
    const absl::Status first =
        ReferenceResize(source, resampling, source.width, height,
                        absl::MakeSpan(narrow.pixels));
    return first.ok() ? ReferenceResize(narrow, resampling, width, height, out)
                      : first;
  }
  // A pass between equal lengths would leave the pixels as they are.
  if (height == source.height) {
    const ResampleWeights horizontal =
        AllWeights(source.width, width, resampling);
    for (size_t y = 0; y < height; ++y) {
      ResampleRow(source.pixels.data() + y * source_stride, horizontal,
                  out.data() + y * stride);
    }
    return absl::OkStatus();
  }
  const uint8_t* rows = source.pixels.data();
  std::vector<uint8_t> resampled;
  if (width != source.width) {
    const ResampleWeights horizontal =
        AllWeights(source.width, width, resampling);
    resampled.resize(stride * source.height);
    for (size_t y = 0; y < source.height; ++y) {
      ResampleRow(source.pixels.data() + y * source_stride, horizontal,
                  resampled.data() + y * stride);
    }
    rows = resampled.data();
  }
  const ResampleWeights vertical =
      AllWeights(source.height, height, resampling);
  std::vector<int32_t> sums;
  for (size_t y = 0; y < height; ++y) {
    const ResampleTaps& taps = vertical.taps[y];
    ResampleColumns(rows + taps.first * stride, stride, taps,
                    vertical.weights.data() + taps.weights, sums,
                    out.data() + y * stride);
  }
  return absl::OkStatus();
}

}  // namespace ballast
