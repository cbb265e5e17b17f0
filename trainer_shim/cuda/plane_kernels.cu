#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/image/engine_jpeg.h"
#include "proto/image/resample_weights.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/plane_kernels.h"
#include "trainer_shim/pixel_arithmetic.h"

namespace ballast {
namespace {

constexpr int kThreads = 256;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// Returns the image that a row belongs to; `first` is the member of
// ResampleImage with its first row.
__device__ inline const ResampleImage& FindImage(const ResampleImage* images,
                                                 uint32_t count,
                                                 uint32_t ResampleImage::*first,
                                                 uint32_t row) {
  uint32_t low = 0;
  uint32_t high = count;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (images[middle].*first <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return images[low];
}

__device__ inline uint8_t Clip(int32_t sum) {
  return ClipToByte(sum >> kWeightBits);
}

// The chroma samples of a column from which two pixels are made.
__device__ inline int ColumnAt(const uint8_t* near, const uint8_t* far,
                               uint32_t at) {
  return far == nullptr ? near[at] : ColumnSum(near[at], far[at]);
}

// A plane's chroma at pixels 2 * at and 2 * at + 1.
__device__ inline void PairAt(const uint8_t* near, const uint8_t* far,
                              uint32_t at, uint32_t width, int* left,
                              int* right) {
  if (width <= kMaxRepeatedWidth) {
    *left = *right = near[at];
    return;
  }
  const int middle = ColumnAt(near, far, at);
  const int before = ColumnAt(near, far, at == 0 ? 0 : at - 1);
  const int after = ColumnAt(near, far, at + 1 == width ? at : at + 1);
  if (far == nullptr) {
    *left = UpsampledAcross(middle, before, false);
    *right = UpsampledAcross(middle, after, true);
  } else {
    *left = UpsampledBoth(middle, before, false);
    *right = UpsampledBoth(middle, after, true);
  }
}

__device__ inline uchar4 GetPixel(int y, int cb, int cr) {
  const Rgb rgb = YccToRgb(y, cb, cr);
  return {rgb.r, rgb.g, rgb.b, 0};
}

// The block's threads write row `y` of a picture to `row`.
__device__ inline void LoadRow(const ResampleImage& image,
                               const uint8_t* planes, uint32_t y, uchar4* row) {
  const uint8_t* luma = planes + image.planes[0] + uint64_t{y} * image.pitch[0];
  if (image.sampling == ChromaSampling::kGrey) {
    for (uint32_t x = threadIdx.x; x < image.width; x += kThreads) {
      row[x] = {luma[x], luma[x], luma[x], 0};
    }
    return;
  }
  if (image.sampling == ChromaSampling::kVideo) {
    const uint8_t* pairs =
        planes + image.planes[1] + uint64_t{y / 2} * image.pitch[1];
    for (uint32_t x = threadIdx.x; x < image.width; x += kThreads) {
      const uint8_t* pair = pairs + x / 2 * 2;
      const Rgb rgb = VideoToRgb(luma[x], pair[0], pair[1], image.colours);
      row[x] = {rgb.r, rgb.g, rgb.b, 0};
    }
    return;
  }
  const bool both = image.sampling == ChromaSampling::k420;
  const uint32_t near = both ? y / 2 : y;
  const uint32_t far = y % 2 == 0 ? (near == 0 ? 0 : near - 1)
                       : near + 1 == image.chroma_height ? near
                                                         : near + 1;
  const uint8_t* blue = planes + image.planes[1];
  const uint8_t* red = planes + image.planes[2];
  const uint8_t* far_blue =
      both ? blue + uint64_t{far} * image.pitch[1] : nullptr;
  const uint8_t* far_red =
      both ? red + uint64_t{far} * image.pitch[2] : nullptr;
  blue += uint64_t{near} * image.pitch[1];
  red += uint64_t{near} * image.pitch[2];
  if (image.sampling == ChromaSampling::k444) {
    for (uint32_t x = threadIdx.x; x < image.width; x += kThreads) {
      row[x] = GetPixel(luma[x], blue[x], red[x]);
    }
    return;
  }
  for (uint32_t at = threadIdx.x; at < image.chroma_width; at += kThreads) {
    int left_blue, right_blue, left_red, right_red;
    PairAt(blue, far_blue, at, image.chroma_width, &left_blue, &right_blue);
    PairAt(red, far_red, at, image.chroma_width, &left_red, &right_red);
    const uint32_t x = 2 * at;
    row[x] = GetPixel(luma[x], left_blue, left_red);
    if (x + 1 < image.width) {
      row[x + 1] = GetPixel(luma[x + 1], right_blue, right_red);
    }
  }
}

// A block makes one narrow row: pixels into shared memory, then each thread the
// weighted sums of some columns.
__global__ void __launch_bounds__(kThreads)
    NarrowKernel(const ResampleImage* images, uint32_t count,
                 const AxisTaps* taps, const int32_t* weights,
                 const uint8_t* planes, uint8_t* narrow) {
  extern __shared__ uchar4 row[];
  const ResampleImage& image =
      FindImage(images, count, &ResampleImage::first_row, blockIdx.x);
  const uint32_t y = blockIdx.x - image.first_row;
  LoadRow(image, planes, y, row);
  __syncthreads();
  uint8_t* out = narrow + image.narrow + uint64_t{y} * image.narrow_pitch;
  for (uint32_t x = threadIdx.x; x < image.out_width; x += kThreads) {
    const AxisTaps tap = taps[image.columns + x];
    const int32_t* weight = weights + tap.weights;
    const uchar4* pixel = row + tap.first;
    int32_t r = kHalf, g = kHalf, b = kHalf;
    for (uint32_t i = 0; i < tap.count; ++i, weight += image.out_width) {
      const int32_t w = __ldg(weight);
      r += pixel[i].x * w;
      g += pixel[i].y * w;
      b += pixel[i].z * w;
    }
    out[3 * x] = Clip(r);
    out[3 * x + 1] = Clip(g);
    out[3 * x + 2] = Clip(b);
  }
}

// A block makes one row of pixels, each thread four bytes at a time. Narrow
// rows begin at multiples of four and have room for whole fours.
__global__ void __launch_bounds__(kThreads)
    ShortenKernel(const ResampleImage* images, uint32_t count,
                  const AxisTaps* taps, const int32_t* weights,
                  const uint8_t* narrow, uint8_t* pixels) {
  const ResampleImage& image =
      FindImage(images, count, &ResampleImage::first_out_row, blockIdx.x);
  const uint32_t y = blockIdx.x - image.first_out_row;
  const AxisTaps tap = taps[image.rows + y];
  const int32_t* weight = weights + tap.weights;
  const uint32_t bytes = 3 * image.out_width;
  const uint8_t* from =
      narrow + image.narrow + uint64_t{tap.first} * image.narrow_pitch;
  uint8_t* out = pixels + image.out + uint64_t{y} * bytes;
  const bool in_words = reinterpret_cast<uintptr_t>(out) % 4 == 0;
  for (uint32_t x = 4 * threadIdx.x; x < bytes; x += 4 * kThreads) {
    int32_t sums[4] = {kHalf, kHalf, kHalf, kHalf};
    const uint8_t* column = from + x;
    const int32_t* next = weight;
    for (uint32_t i = 0; i < tap.count;
         ++i, column += image.narrow_pitch, next += image.out_height) {
      const int32_t w = __ldg(next);
      const uchar4 four = *reinterpret_cast<const uchar4*>(column);
      sums[0] += four.x * w;
      sums[1] += four.y * w;
      sums[2] += four.z * w;
      sums[3] += four.w * w;
    }
    if (in_words && x + 4 <= bytes) {
      *reinterpret_cast<uchar4*>(out + x) = {Clip(sums[0]), Clip(sums[1]),
                                             Clip(sums[2]), Clip(sums[3])};
    } else {
      for (uint32_t i = 0; i < 4 && x + i < bytes; ++i) {
        out[x + i] = Clip(sums[i]);
      }
    }
  }
}

constexpr uint32_t kMaxShared = kMaxEngineSide * sizeof(uchar4);

}  // namespace

absl::StatusOr<PlaneKernels> PlaneKernels::Create() {
  BALLAST_RETURN_IF_ERROR(
      LoadKernels({reinterpret_cast<const void*>(NarrowKernel),
                   reinterpret_cast<const void*>(ShortenKernel)}));
  BALLAST_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(NarrowKernel,
                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kMaxShared),
      "asking for shared memory"));
  return PlaneKernels();
}

absl::Status PlaneKernels::Launch(const PlaneBatch& batch,
                                  cudaStream_t stream) const {
  const ResamplePlan& plan = *batch.plan;
  if (plan.images.empty()) return absl::OkStatus();
  if (batch.images == nullptr || batch.taps == nullptr ||
      batch.weights == nullptr || batch.planes == nullptr ||
      batch.narrow == nullptr || batch.out == nullptr) {
    return absl::InvalidArgumentError("memory of a batch of planes is null");
  }
  if (plan.most_width > kMaxEngineSide) {
    return absl::InvalidArgumentError(
        absl::StrCat("a picture is ", plan.most_width,
                     " pixels wide; the kernels take ", kMaxEngineSide));
  }
  const auto count = static_cast<uint32_t>(plan.images.size());
  const size_t shared = plan.most_width * sizeof(uchar4);
  BALLAST_RETURN_IF_ERROR(
      EnqueueKernel("launch of the horizontal pass", NarrowKernel,
                    {plan.rows, kThreads, shared}, stream, batch.images, count,
                    batch.taps, batch.weights, batch.planes, batch.narrow));
  return EnqueueKernel("launch of the vertical pass", ShortenKernel,
                       {plan.out_rows, kThreads}, stream, batch.images, count,
                       batch.taps, batch.weights, batch.narrow, batch.out);
}

}  // namespace ballast
