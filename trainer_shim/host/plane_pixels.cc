#include "trainer_shim/host/plane_pixels.h"

#include <algorithm>
#include <cstddef>

#include "proto/image/resample_weights.h"
#include "trainer_shim/plane_arithmetic.h"

namespace ballast {
namespace {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// The rows of a chroma plane from which a row of pixels is made.
struct ChromaRows {
  const uint8_t* near;
  const uint8_t* far;  // 4:2:0: the next row on the pixels' side
};

ChromaRows RowsAt(const ResampleImage& image, const uint8_t* planes, int plane,
                  uint32_t y) {
  const auto row = [&](uint32_t at) {
    return planes + image.planes[plane] + uint64_t{at} * image.pitch[plane];
  };
  if (image.sampling != ChromaSampling::k420) return {row(y), nullptr};
  const uint32_t near = y / 2;
  const uint32_t far = y % 2 == 0 ? (near == 0 ? 0 : near - 1)
                                  : std::min(near + 1, image.chroma_height - 1);
  return {row(near), row(far)};
}

int ChromaAt(const ResampleImage& image, const ChromaRows& rows, uint32_t x) {
  if (image.sampling == ChromaSampling::k444) return rows.near[x];
  const uint32_t near = x / 2;
  if (image.chroma_width <= kMaxRepeatedWidth) return rows.near[near];
  const bool right = x % 2 == 1;
  const uint32_t far = right ? std::min(near + 1, image.chroma_width - 1)
                             : (near == 0 ? 0 : near - 1);
  if (image.sampling == ChromaSampling::k422) {
    return UpsampledAcross(rows.near[near], rows.near[far], right);
  }
  return UpsampledBoth(ColumnSum(rows.near[near], rows.far[near]),
                       ColumnSum(rows.near[far], rows.far[far]), right);
}

}  // namespace

void PlaneRowToRgb(const ResampleImage& image, const uint8_t* planes,
                   uint32_t y, uint8_t* rgb) {
  const uint8_t* luma = planes + image.planes[0] + uint64_t{y} * image.pitch[0];
  if (image.sampling == ChromaSampling::kGrey) {
    for (uint32_t x = 0; x < image.width; ++x, rgb += 3) {
      std::fill_n(rgb, 3, luma[x]);
    }
    return;
  }
  const ChromaRows blue = RowsAt(image, planes, 1, y);
  const ChromaRows red = RowsAt(image, planes, 2, y);
  for (uint32_t x = 0; x < image.width; ++x, rgb += 3) {
    const Rgb pixel =
        YccToRgb(luma[x], ChromaAt(image, blue, x), ChromaAt(image, red, x));
    rgb[0] = pixel.r;
    rgb[1] = pixel.g;
    rgb[2] = pixel.b;
  }
}

void NarrowRows(const ResamplePlan& plan, const uint8_t* planes,
                absl::Span<uint8_t> row, uint8_t* narrow) {
  for (const ResampleImage& image : plan.images) {
    for (uint32_t y = 0; y < image.height; ++y) {
      PlaneRowToRgb(image, planes, y, row.data());
      uint8_t* out = narrow + image.narrow + uint64_t{y} * image.narrow_pitch;
      for (uint32_t x = 0; x < image.out_width; ++x, out += 3) {
        const AxisTaps& taps = plan.taps[image.columns + x];
        const int32_t* weights = plan.weights.data() + taps.weights;
        for (int c = 0; c < 3; ++c) {
          const uint8_t* value = row.data() + size_t{taps.first} * 3 + c;
          int32_t sum = kHalf;
          for (uint32_t i = 0; i < taps.count; ++i) {
            sum += value[size_t{i} * 3] * weights[size_t{i} * image.out_width];
          }
          out[c] = ClipWeightedSum(sum);
        }
      }
    }
  }
}

void ShortenColumns(const ResamplePlan& plan, const uint8_t* narrow,
                    uint8_t* out) {
  for (const ResampleImage& image : plan.images) {
    const size_t row_bytes = size_t{image.out_width} * 3;
    for (uint32_t y = 0; y < image.out_height; ++y) {
      const AxisTaps& taps = plan.taps[image.rows + y];
      const int32_t* weights = plan.weights.data() + taps.weights;
      const uint8_t* first =
          narrow + image.narrow + uint64_t{taps.first} * image.narrow_pitch;
      uint8_t* to = out + image.out + y * row_bytes;
      for (size_t x = 0; x < row_bytes; ++x) {
        int32_t sum = kHalf;
        for (uint32_t i = 0; i < taps.count; ++i) {
          sum += first[size_t{i} * image.narrow_pitch + x] *
                 weights[size_t{i} * image.out_height];
        }
        to[x] = ClipWeightedSum(sum);
      }
    }
  }
}

}  // namespace ballast
