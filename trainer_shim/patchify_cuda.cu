#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda_status.h"
#include "trainer_shim/patchify_cuda.h"

namespace ballast {
namespace {

// ---- Constants --------------------------------------------------------------

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
// A block takes so many tokens where there are enough to go round: finding an
// image, and copying the values, then costs little.
constexpr uint32_t kMaxTokensOfBlock = 16;
// Blocks that keep a multiprocessor busy.
constexpr int kBlocksOfMultiprocessor = 8;
constexpr uint64_t kOutAlignment = 16;

// ---- Arguments --------------------------------------------------------------

// What every byte becomes, by channel.
struct Values {
  float floats[3][256];
  uint16_t bfloat16s[3][256];
};

// byte * scale + offset.
struct Line {
  float scale;
  float offset;
};

template <typename T>
struct Arguments {
  const uint8_t* pixels;
  const PatchifyImage* images;  // rows ascend without a gap
  uint32_t image_count;
  uint64_t first_row;  // of the first image
  uint64_t rows;       // of all images
  const Values* values;
  Line lines[3];  // of the channels, where the kernel computes
  T* out;
};

// ---- Device helpers ---------------------------------------------------------

// Four values, written at once.
template <typename T>
struct Four;
template <>
struct Four<float> {
  using Vector = float4;
};
template <>
struct Four<uint16_t> {
  using Vector = ushort4;
};

__device__ inline const float (*TableOf(const Values& values, float))[256] {
  return values.floats;
}
__device__ inline const uint16_t (*TableOf(const Values& values,
                                           uint16_t))[256] {
  return values.bfloat16s;
}

// The image that `row` belongs to.
__device__ inline PatchifyImage FindImage(const PatchifyImage* images,
                                          uint32_t count, uint64_t row) {
  uint32_t low = 0;
  uint32_t high = count;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (images[middle].first_row <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return images[low];
}

// The byte of four pixels' `words` at `n`, a constant once unrolled, as a
// number: put below the bits of 2^23, which are taken off again. That costs
// less than a conversion.
__device__ inline float NumberOf(const uint32_t (&words)[3], int n) {
  const uint32_t bits = __byte_perm(words[n / 4], 0x4B000000u, 0x7540 | n % 4);
  return __uint_as_float(bits) - 8388608.0f;
}

// Four values of channel `c`, of the four pixels whose bytes are `words`.
template <typename T, bool kComputed>
__device__ inline typename Four<T>::Vector ValuesOf(const uint32_t (&words)[3],
                                                    int c, const Line& line,
                                                    const T (*values)[256]) {
  if constexpr (kComputed) {
    const auto two = [&](int n) {
      const auto value = [&](int pixel) {
        return fmaf(NumberOf(words, 3 * pixel + c), line.scale, line.offset);
      };
      const __nv_bfloat162 pair = __floats2bfloat162_rn(value(n), value(n + 1));
      return *reinterpret_cast<const ushort2*>(&pair);
    };
    const ushort2 low = two(0);
    const ushort2 high = two(2);
    return {low.x, low.y, high.x, high.y};
  } else {
    const auto value = [&](int n) {
      const int byte = 3 * n + c;
      return values[c][words[byte / 4] >> byte % 4 * 8 & 0xFF];
    };
    return {value(0), value(1), value(2), value(3)};
  }
}

// Where a token's pixels begin, and bytes from a row of pixels to the next.
struct Corner {
  const uint8_t* first;
  uint64_t stride;
};

template <typename T, int kP, int kM>
__device__ inline Corner FindCorner(const Arguments<T>& a, uint64_t token) {
  const uint64_t row = a.first_row + token * (kM * kM);
  const PatchifyImage image = FindImage(a.images, a.image_count, row);
  const uint32_t number = (row - image.first_row) / (kM * kM);
  const uint32_t across = image.grid_w / kM;
  const uint64_t stride = uint64_t{3} * kP * image.grid_w;
  return {a.pixels + image.pixel_offset + number / across * (kP * kM * stride) +
              uint64_t{number % across} * (3 * kP * kM),
          stride};
}

// The 6 bytes of two pixels at an even address, out of the two words that hold
// them. Images begin and end at words, so these lie within the image.
__device__ inline uint2 ReadTwoPixels(const uint8_t* first) {
  const uint32_t shift = reinterpret_cast<uintptr_t>(first) % 4 * 8;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(first - shift / 8);
  const uint32_t low = __ldg(words);
  const uint32_t high = __ldg(words + 1);
  return {__funnelshift_r(low, high, shift), high >> shift & 0xFFFF};
}

// The 12 bytes of four pixels that follow one another in a patch, from pixel
// number `pixel`, a multiple of 4, on. They may go on in the patch's next row.
template <int kP>
__device__ inline void ReadFourPixels(const uint8_t* patch, uint64_t stride,
                                      int pixel, uint32_t (&words)[3]) {
  const uint8_t* first = patch + pixel / kP * stride + pixel % kP * 3;
  if constexpr (kP % 4 == 0) {
    const uint32_t* from = reinterpret_cast<const uint32_t*>(first);
#pragma unroll
    for (int i = 0; i < 3; ++i) words[i] = __ldg(from + i);
  } else {
    const int next = pixel + 2;
    const uint2 a = ReadTwoPixels(first);
    const uint2 b = ReadTwoPixels(patch + next / kP * stride + next % kP * 3);
    words[0] = a.x;
    words[1] = a.y | b.x << 16;
    words[2] = b.x >> 16 | b.y << 16;
  }
}

// A warp turns one patch into values, [3, kPlane].
template <typename T, int kP, bool kComputed>
__device__ inline void Normalise(const uint8_t* patch, uint64_t stride,
                                 int lane, const Line (&lines)[3],
                                 const T (*values)[256], T* staged) {
  constexpr int kPlane = kP * kP;
  constexpr int kRounds = (kPlane / 4 + kWarp - 1) / kWarp;
  // All loads are under way before the first is waited for.
  uint32_t words[kRounds][3];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int four = lane + i * kWarp;
    if (four < kPlane / 4) {
      ReadFourPixels<kP>(patch, stride, four * 4, words[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int four = lane + i * kWarp;
    if (four < kPlane / 4) {
#pragma unroll
      for (int c = 0; c < 3; ++c) {
        *reinterpret_cast<typename Four<T>::Vector*>(staged + c * kPlane +
                                                     four * 4) =
            ValuesOf<T, kComputed>(words[i], c, lines[c], values);
      }
    }
  }
}

// A warp writes one row of the output: each channel kTp times.
template <typename T, int kP, int kTp>
__device__ inline void StoreRow(const T* staged, int lane, T* out) {
  constexpr int kPlane = kP * kP * sizeof(T);  // bytes
  constexpr int kChunks = 3 * kTp * kPlane / 16;
#pragma unroll 1
  for (int chunk = lane; chunk < kChunks; chunk += kWarp) {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(staged);
    uint4 four;
    if constexpr (kPlane % 16 == 0) {
      constexpr int kOfPlane = kPlane / 16;
      four = *reinterpret_cast<const uint4*>(
          bytes + chunk / (kOfPlane * kTp) * kPlane + chunk % kOfPlane * 16);
    } else {
      constexpr int kOfPlane = kPlane / 8;
      const auto half = [&](int n) {
        return *reinterpret_cast<const uint2*>(
            bytes + n / (kOfPlane * kTp) * kPlane + n % kOfPlane * 8);
      };
      const uint2 low = half(2 * chunk);
      const uint2 high = half(2 * chunk + 1);
      four = {low.x, low.y, high.x, high.y};
    }
    __stcs(reinterpret_cast<uint4*>(out) + chunk, four);
  }
}

// ---- Kernels ----------------------------------------------------------------

// The optimised one. A block takes `tokens_of_block` tokens in a row, a warp a
// patch at a time: its pixels to values in shared memory, then out in whole
// chunks of 16 bytes, neighbouring lanes to neighbouring addresses. What a warp
// reads lies in a few rows of pixels, whose other bytes its block reads next.
template <typename T, int kP, int kM, int kTp, bool kComputed>
__global__ void __launch_bounds__(kThreads)
    PatchifyTokens(const Arguments<T> a, uint32_t tokens_of_block) {
  constexpr int kPlane = kP * kP;         // values of a channel of a patch
  constexpr int kRow = 3 * kTp * kPlane;  // values of a row of the output
  // Four pixels never leave a patch, two never leave a row of pixels, and half
  // a chunk never leaves a channel.
  static_assert(kP % 2 == 0 && kPlane % 4 == 0);
  static_assert(kRow * sizeof(T) % 16 == 0 && kPlane * sizeof(T) % 8 == 0);
  __shared__ Corner corners[kMaxTokensOfBlock];
  __shared__ T values[kComputed ? 1 : 3][256];
  alignas(16) __shared__ T staged[kWarps][3 * kPlane];
  const uint64_t first = uint64_t{blockIdx.x} * tokens_of_block;
  const uint64_t tokens = a.rows / (kM * kM);
  const uint32_t count = tokens - first < tokens_of_block
                             ? static_cast<uint32_t>(tokens - first)
                             : tokens_of_block;
  if (threadIdx.x < count) {
    corners[threadIdx.x] = FindCorner<T, kP, kM>(a, first + threadIdx.x);
  }
  if constexpr (!kComputed) {
    const T(*all)[256] = TableOf(*a.values, T());
    for (int i = threadIdx.x; i < 3 * 256; i += kThreads) {
      values[i / 256][i % 256] = all[i / 256][i % 256];
    }
  }
  __syncthreads();

  const int lane = threadIdx.x % kWarp;
  T* const own = staged[threadIdx.x / kWarp];
  for (uint32_t patch = threadIdx.x / kWarp; patch < count * (kM * kM);
       patch += kWarps) {
    const Corner corner = corners[patch / (kM * kM)];
    const uint32_t y = patch % (kM * kM) / kM;
    const uint32_t x = patch % kM;
    Normalise<T, kP, kComputed>(
        corner.first + y * kP * corner.stride + x * kP * 3, corner.stride, lane,
        a.lines, values, own);
    __syncwarp();
    StoreRow<T, kP, kTp>(
        own, lane, a.out + (a.first_row + first * (kM * kM) + patch) * kRow);
    __syncwarp();
  }
}

// The simple one, for any shape: each thread one value at a time, by the
// formula of patchify.h.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    PatchifyValues(const Arguments<T> a, const PatchShape shape) {
  const uint64_t p = shape.patch;
  const uint64_t m = shape.merge;
  const uint64_t columns = 3 * shape.temporal_patch * p * p;
  const T(*values)[256] = TableOf(*a.values, T());
  const uint64_t threads = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
       i < a.rows * columns; i += threads) {
    const uint64_t row = a.first_row + i / columns;
    const uint64_t column = i % columns;
    const PatchifyImage image = FindImage(a.images, a.image_count, row);
    const uint64_t token = (row - image.first_row) / (m * m);
    const uint64_t within = (row - image.first_row) % (m * m);
    const uint64_t across = image.grid_w / m;
    const uint64_t y = (token / across * m + within / m) * p + column / p % p;
    const uint64_t x = (token % across * m + within % m) * p + column % p;
    const uint64_t c = column / (shape.temporal_patch * p * p);
    const uint8_t byte =
        a.pixels[image.pixel_offset + 3 * (y * image.grid_w * p + x) + c];
    a.out[row * columns + column] = values[c][byte];
  }
}

// ---- Launchers --------------------------------------------------------------

bool Aligned(const void* address, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

absl::Status CheckMemory(const PatchifyBatch& batch) {
  const auto missing = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is null"));
  };
  if (batch.pixels == nullptr) return missing("pixels");
  if (batch.device_images == nullptr) return missing("device_images");
  if (batch.out == nullptr) return missing("out");
  if (!Aligned(batch.out, kOutAlignment) ||
      !Aligned(batch.device_images, alignof(PatchifyImage))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "out must begin at a multiple of ", kOutAlignment,
        " bytes, device_images at one of ", alignof(PatchifyImage)));
  }
  return absl::OkStatus();
}

bool InWords(const PatchifyBatch& batch) {
  return Aligned(batch.pixels, 4) &&
         std::all_of(batch.images.begin(), batch.images.end(),
                     [](const PatchifyImage& image) {
                       return image.pixel_offset % 4 == 0;
                     });
}

template <typename T>
using TokenKernel = void (*)(Arguments<T>, uint32_t);

// The optimised kernel of a shape, or null.
template <typename T, bool kComputed>
TokenKernel<T> TokenKernelOf(const PatchShape& shape) {
  if (shape.merge != 2 || shape.temporal_patch != 2) return nullptr;
  if (shape.patch == 14) return PatchifyTokens<T, 14, 2, 2, kComputed>;
  if (shape.patch == 16) return PatchifyTokens<T, 16, 2, 2, kComputed>;
  return nullptr;
}

template <typename T>
TokenKernel<T> ChooseKernel(const PatchShape& shape, bool computed) {
  if constexpr (sizeof(T) == sizeof(uint16_t)) {
    if (computed) return TokenKernelOf<T, true>(shape);
  }
  return TokenKernelOf<T, false>(shape);
}

// As many blocks as `items` need at `items_of_block` each.
uint64_t Blocks(uint64_t items, uint64_t items_of_block) {
  return (items + items_of_block - 1) / items_of_block;
}

template <typename T>
absl::Status LaunchAs(const PatchifyBatch& batch, const PatchShape& shape,
                      uint64_t rows, const void* values,
                      const std::optional<CudaPatchifier::Lines>& lines,
                      int multiprocessors, cudaStream_t stream) {
  Arguments<T> arguments = {};
  arguments.pixels = batch.pixels;
  arguments.images = batch.device_images;
  arguments.image_count = static_cast<uint32_t>(batch.images.size());
  arguments.first_row = batch.images[0].first_row;
  arguments.rows = rows;
  arguments.values = static_cast<const Values*>(values);
  for (int c = 0; c < 3 && lines.has_value(); ++c) {
    arguments.lines[c] = {lines->scale[c], lines->offset[c]};
  }
  arguments.out = static_cast<T*>(batch.out);

  const uint64_t resident = uint64_t{kBlocksOfMultiprocessor} * multiprocessors;
  const TokenKernel<T> kernel =
      batch.kernel == PatchifyKernel::kFastest && InWords(batch)
          ? ChooseKernel<T>(shape, lines.has_value())
          : nullptr;
  if (kernel != nullptr) {
    const uint64_t tokens = rows / (shape.merge * shape.merge);
    const uint32_t each = static_cast<uint32_t>(
        std::clamp<uint64_t>(tokens / (4 * resident), 1, kMaxTokensOfBlock));
    const uint64_t blocks = Blocks(tokens, each);
    if (blocks > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat(rows, " patches are more than a launch can hold"));
    }
    kernel<<<blocks, kThreads, 0, stream>>>(arguments, each);
  } else {
    const uint64_t blocks =
        std::min(Blocks(rows * shape.row(), kThreads), resident * 8);
    PatchifyValues<T><<<blocks, kThreads, 0, stream>>>(arguments, shape);
  }
  return CudaStatus(cudaGetLastError(), "launch of patchify");
}

// The line through each channel's values, if it gives all their bfloat16s.
std::optional<CudaPatchifier::Lines> LinesOf(const NormaliseTable& table) {
  CudaPatchifier::Lines lines;
  for (int c = 0; c < 3; ++c) {
    const auto& floats = table.floats(c);
    lines.scale[c] =
        static_cast<float>((double{floats[255]} - double{floats[0]}) / 255);
    lines.offset[c] = floats[0];
    for (int byte = 0; byte < 256; ++byte) {
      const float value =
          std::fma(static_cast<float>(byte), lines.scale[c], lines.offset[c]);
      if (ToBfloat16(value) != table.bfloat16s(c)[byte]) return std::nullopt;
    }
  }
  return lines;
}

// The first launch of a kernel loads it, which may wait for the whole device.
absl::Status LoadKernels(const PatchShape& shape) {
  for (const void* kernel :
       {reinterpret_cast<const void*>(ChooseKernel<float>(shape, false)),
        reinterpret_cast<const void*>(ChooseKernel<uint16_t>(shape, false)),
        reinterpret_cast<const void*>(ChooseKernel<uint16_t>(shape, true)),
        reinterpret_cast<const void*>(PatchifyValues<float>),
        reinterpret_cast<const void*>(PatchifyValues<uint16_t>)}) {
    if (kernel == nullptr) continue;
    cudaFuncAttributes attributes;
    BALLAST_RETURN_IF_ERROR(CudaStatus(
        cudaFuncGetAttributes(&attributes, kernel), "loading a kernel"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudaPatchifier> CudaPatchifier::Create(
    const PatchShape& shape, const NormaliseTable& table) {
  int device = 0;
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaGetDevice(&device), "asking for the current device"));
  const auto host = std::make_unique<Values>();
  for (int c = 0; c < 3; ++c) {
    std::copy_n(table.floats(c).begin(), 256, host->floats[c]);
    std::copy_n(table.bfloat16s(c).begin(), 256, host->bfloat16s[c]);
  }
  BALLAST_ASSIGN_OR_RETURN(DeviceBuffer values,
                           DeviceBuffer::Create(sizeof(Values)));
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(values.data(), host.get(), sizeof(Values),
                            cudaMemcpyHostToDevice),
                 "copy of the normalising table to the device"));
  CudaPatchifier patchifier(shape, device, std::move(values));
  patchifier.lines_ = LinesOf(table);
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&patchifier.multiprocessors_,
                                        cudaDevAttrMultiProcessorCount, device),
                 "asking for the number of multiprocessors"));
  BALLAST_RETURN_IF_ERROR(LoadKernels(shape));
  return patchifier;
}

absl::Status CudaPatchifier::Launch(const PatchifyBatch& batch,
                                    cudaStream_t stream) const {
  BALLAST_ASSIGN_OR_RETURN(
      const uint64_t rows,
      CheckImages(batch.images, shape_, batch.pixel_bytes, batch.out_rows));
  if (rows == 0) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(CheckMemory(batch));
  int current = 0;
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaGetDevice(&current), "asking for the current device"));
  if (current != device_) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", current, " is current, and the patchifier is ",
                     "of device ", device_));
  }
  return batch.type == PixelType::kFloat32
             ? LaunchAs<float>(batch, shape_, rows, values_.data(), lines_,
                               multiprocessors_, stream)
             : LaunchAs<uint16_t>(batch, shape_, rows, values_.data(), lines_,
                                  multiprocessors_, stream);
}

}  // namespace ballast
