#include <algorithm>
#include <limits>
#include <memory>
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
// Blocks of 256 threads that a multiprocessor holds at most.
constexpr int kBlocksOfMultiprocessor = 8;
// Enough to hide the latency of memory; the compiler keeps to its registers.
constexpr int kBlocksWanted = 6;
// A block copies the values into its shared memory once and then cuts so many
// tokens a warp, where there are enough to go round.
constexpr int kTokensOfWarp = 4;
constexpr uint64_t kOutAlignment = 16;

// ---- Arguments --------------------------------------------------------------

// What every byte becomes, by channel.
struct Values {
  float floats[3][256];
  uint16_t bfloat16s[3][256];
};

template <typename T>
struct Arguments {
  const uint8_t* pixels;
  const PatchifyImage* images;  // rows ascend without a gap
  uint32_t image_count;
  uint64_t first_row;  // of the first image
  uint64_t rows;       // of all images
  const Values* values;
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

__device__ inline const float (*ValuesOf(const Values& values, float))[256] {
  return values.floats;
}
__device__ inline const uint16_t (*ValuesOf(const Values& values,
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

// A token is the kM*kM patches of kP*kP pixels that the model merges: a square
// of pixels, and consecutive rows of the output.
template <int kP, int kM>
struct Token {
  static constexpr int kSide = kP * kM;            // pixels
  static constexpr int kRowWords = 3 * kSide / 4;  // 4 bytes each
  static constexpr int kWords = kSide * kRowWords;
  // Four pixels never leave a patch, two never leave a row of pixels.
  static_assert(kP % 2 == 0 && kSide % 4 == 0);
};

// A warp copies the pixels of one token, row after row, into `tile`.
// `corner`: its first pixel; `stride`: words from a row of pixels to the next.
template <int kP, int kM>
__device__ inline void LoadToken(const uint32_t* __restrict__ corner,
                                 uint64_t stride, int lane, uint32_t* tile) {
  using Shape = Token<kP, kM>;
  // Loads of a batch are all under way before the first is waited for; more at
  // once would take too many registers.
  constexpr int kBatch = 8;
  uint32_t words[kBatch];
#pragma unroll 1
  for (int begin = lane; begin < Shape::kWords; begin += kBatch * kWarp) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int word = begin + i * kWarp;
      if (word < Shape::kWords) {
        words[i] = __ldg(corner + word / Shape::kRowWords * stride +
                         word % Shape::kRowWords);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int word = begin + i * kWarp;
      if (word < Shape::kWords) tile[word] = words[i];
    }
  }
}

// The 12 bytes of four pixels that follow one another in a patch, from pixel
// (y, x) of the tile on, x even. They may go on in the patch's next row.
template <int kP, int kM>
__device__ inline void ReadFourPixels(const uint8_t* tile, int patch, int pixel,
                                      uint32_t (&bytes)[3]) {
  constexpr int kRowBytes = 4 * Token<kP, kM>::kRowWords;
  const uint8_t* corner =
      tile + patch / kM * kP * kRowBytes + patch % kM * kP * 3;
  const uint8_t* first = corner + pixel / kP * kRowBytes + pixel % kP * 3;
  if constexpr (kP % 4 == 0) {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(first);
    for (int i = 0; i < 3; ++i) bytes[i] = words[i];
  } else {
    const int next = pixel + 2;
    const uint16_t* a = reinterpret_cast<const uint16_t*>(first);
    const uint16_t* b = reinterpret_cast<const uint16_t*>(
        corner + next / kP * kRowBytes + next % kP * 3);
    bytes[0] = a[0] | uint32_t{a[1]} << 16;
    bytes[1] = a[2] | uint32_t{b[0]} << 16;
    bytes[2] = b[1] | uint32_t{b[2]} << 16;
  }
}

// A warp writes the rows of the token in `tile`, from `out` on.
template <typename T, int kP, int kM, int kTp>
__device__ inline void StoreToken(const uint32_t* tile, const T (*values)[256],
                                  int lane, T* out) {
  using Vector = typename Four<T>::Vector;
  constexpr int kPlane = kP * kP;
  constexpr int kFours = kPlane / 4;
  // Unrolled it would take the registers of half the warps.
#pragma unroll 1
  for (int i = lane; i < kM * kM * kFours; i += kWarp) {
    const int patch = i / kFours;
    const int pixel = i % kFours * 4;
    uint32_t bytes[3];
    ReadFourPixels<kP, kM>(reinterpret_cast<const uint8_t*>(tile), patch, pixel,
                           bytes);
    T* row = out + patch * (3 * kTp * kPlane) + pixel;
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      const auto value = [&](int n) {
        const int byte = 3 * n + c;
        return values[c][bytes[byte / 4] >> byte % 4 * 8 & 0xFF];
      };
      const Vector four = {value(0), value(1), value(2), value(3)};
#pragma unroll
      for (int tp = 0; tp < kTp; ++tp) {
        *reinterpret_cast<Vector*>(row + (c * kTp + tp) * kPlane) = four;
      }
    }
  }
}

// ---- Kernels ----------------------------------------------------------------

// The optimised one. Each warp takes a token at a time: its pixels into shared
// memory in words, then out in vectors of four values, neighbouring lanes to
// neighbouring addresses. A still image's tp copies leave from registers.
template <typename T, int kP, int kM, int kTp>
__global__ void __launch_bounds__(kThreads, kBlocksWanted)
    PatchifyTokens(const Arguments<T> a, uint32_t tokens_of_warp) {
  __shared__ T values[3][256];
  __shared__ uint32_t tiles[kWarps][Token<kP, kM>::kWords];
  const T(*all)[256] = ValuesOf(*a.values, T());
  for (int i = threadIdx.x; i < 3 * 256; i += kThreads) {
    values[i / 256][i % 256] = all[i / 256][i % 256];
  }
  __syncthreads();

  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const uint64_t tokens = a.rows / (kM * kM);
  for (uint32_t i = 0; i < tokens_of_warp; ++i) {
    const uint64_t token =
        (uint64_t{blockIdx.x} * tokens_of_warp + i) * kWarps + warp;
    if (token >= tokens) return;
    const uint64_t row = a.first_row + token * (kM * kM);
    const PatchifyImage image = FindImage(a.images, a.image_count, row);
    const uint32_t number = (row - image.first_row) / (kM * kM);
    const uint32_t across = image.grid_w / kM;
    const uint64_t stride = uint64_t{3} * kP * image.grid_w / 4;
    const uint32_t* corner =
        reinterpret_cast<const uint32_t*>(a.pixels + image.pixel_offset) +
        number / across * (Token<kP, kM>::kSide * stride) +
        uint64_t{number % across} * Token<kP, kM>::kRowWords;
    LoadToken<kP, kM>(corner, stride, lane, tiles[warp]);
    __syncwarp();
    StoreToken<T, kP, kM, kTp>(tiles[warp], values, lane,
                               a.out + row * (3 * kTp * kP * kP));
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
  const T(*values)[256] = ValuesOf(*a.values, T());
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
template <typename T>
TokenKernel<T> TokenKernelOf(const PatchShape& shape) {
  if (shape.merge != 2 || shape.temporal_patch != 2) return nullptr;
  if (shape.patch == 14) return PatchifyTokens<T, 14, 2, 2>;
  if (shape.patch == 16) return PatchifyTokens<T, 16, 2, 2>;
  return nullptr;
}

// As many blocks as `items` need at `items_of_block` each.
uint64_t Blocks(uint64_t items, uint64_t items_of_block) {
  return (items + items_of_block - 1) / items_of_block;
}

template <typename T>
absl::Status LaunchAs(const PatchifyBatch& batch, const PatchShape& shape,
                      uint64_t rows, const void* values, int multiprocessors,
                      cudaStream_t stream) {
  const Arguments<T> arguments = {batch.pixels,
                                  batch.device_images,
                                  static_cast<uint32_t>(batch.images.size()),
                                  batch.images[0].first_row,
                                  rows,
                                  static_cast<const Values*>(values),
                                  static_cast<T*>(batch.out)};
  const TokenKernel<T> kernel =
      batch.kernel == PatchifyKernel::kFastest && InWords(batch)
          ? TokenKernelOf<T>(shape)
          : nullptr;
  const uint64_t resident = uint64_t{kBlocksOfMultiprocessor} * multiprocessors;
  if (kernel != nullptr) {
    const uint64_t tokens = rows / (shape.merge * shape.merge);
    const uint32_t each =
        tokens < resident * kWarps * kTokensOfWarp ? 1 : kTokensOfWarp;
    const uint64_t blocks = Blocks(tokens, uint64_t{kWarps} * each);
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
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&patchifier.multiprocessors_,
                                        cudaDevAttrMultiProcessorCount, device),
                 "asking for the number of multiprocessors"));
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
             ? LaunchAs<float>(batch, shape_, rows, values_.data(),
                               multiprocessors_, stream)
             : LaunchAs<uint16_t>(batch, shape_, rows, values_.data(),
                                  multiprocessors_, stream);
}

}  // namespace ballast
