// The device code of patchify_cuda.cu, the only file that includes this.
#ifndef BALLAST_TRAINER_SHIM_CUDA_PATCHIFY_KERNELS_CUH_
#define BALLAST_TRAINER_SHIM_CUDA_PATCHIFY_KERNELS_CUH_

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "trainer_shim/cuda/patchify_cuda.h"
#include "trainer_shim/pixel_arithmetic.h"

namespace ballast {
namespace {

// ---- Constants --------------------------------------------------------------

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
// Tokens that a block takes if there are enough for all blocks: this many keep
// the cost of finding an image and copying the values small.
constexpr uint32_t kMaxTokensOfBlock = 16;
// Number of blocks that keep a multiprocessor busy.
constexpr int kBlocksOfMultiprocessor = 8;
constexpr uint64_t kOutAlignment = 16;

// ---- Arguments --------------------------------------------------------------

// The value of every byte, for each channel.
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
  Line lines[3];  // for each channel, if the kernel computes
  T* out;
};

// ---- Device helpers ---------------------------------------------------------

// Two or four values, written at once.
template <typename T>
struct Two;
template <>
struct Two<float> {
  using Vector = float2;
};
template <>
struct Two<uint16_t> {
  using Vector = ushort2;
};

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

// Returns the image that `row` belongs to.
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

// Returns byte `n` of four pixels' `words` as a float; `n` is a constant once
// unrolled. Puts the byte below the bits of 2^23 and subtracts 2^23, which
// costs less than a conversion.
__device__ inline float NumberOf(const uint32_t (&words)[3], int n) {
  const uint32_t bits = __byte_perm(words[n / 4], 0x4B000000u, 0x7540 | n % 4);
  return __uint_as_float(bits) - 8388608.0f;
}

// Returns the values of channel `c` of the four pixels whose bytes are `words`.
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

// The start of a token's pixels, the bytes from one row of pixels to the next,
// and the bytes from one frame to the next (0 if there is one frame).
struct Corner {
  const uint8_t* first;
  uint64_t stride;
  uint64_t frame_stride;
};

template <typename T, int kP, int kDown, int kSide>
__device__ inline Corner FindCorner(const Arguments<T>& a, uint64_t token) {
  const uint64_t row = a.first_row + token * (kDown * kSide);
  const PatchifyImage image = FindImage(a.images, a.image_count, row);
  const uint32_t number = (row - image.first_row) / (kDown * kSide);
  const uint32_t across = image.grid_w / kSide;
  const uint64_t stride = uint64_t{3} * image.width;
  return {a.pixels + image.pixel_offset +
              number / across * (kP * kDown * stride) +
              uint64_t{number % across} * (3 * kP * kSide),
          stride, image.frames > 1 ? image.frame_stride : 0};
}

// A group: the patches of a token, side by side, that a warp takes at a time. A
// group has enough patches that their rows of pixels are whole words. The
// patches are consecutive rows of the output.
template <int kP, int kSide>
struct Group {
  static constexpr int kAcross = kP % 4 == 0 ? 1 : kSide;
  static constexpr int kPlane = kP * kP;  // values of a channel of a patch
  static constexpr int kFoursOfRow =
      kAcross * kP / 4;  // pixels, four at a time
  static constexpr int kFours = kP * kFoursOfRow;
  static constexpr int kRounds = (kFours + kWarp - 1) / kWarp;
  static_assert(kAcross * kP % 4 == 0 && kP % 2 == 0);
};

// Puts the values of four pixels of channel `c`, which begin at (y, x) of a
// group, in their places in [patches, 3, kPlane]. Each pair of pixels is in one
// patch.
template <typename T, int kP>
__device__ inline void PutFour(typename Four<T>::Vector four, int c, int y,
                               int x, T* staged) {
  constexpr int kPlane = kP * kP;
  if constexpr (kP % 4 == 0) {
    *reinterpret_cast<typename Four<T>::Vector*>(staged + c * kPlane + y * kP +
                                                 x) = four;
  } else {
    const auto put = [&](int at, T first, T second) {
      T* to = staged + (at / kP * 3 + c) * kPlane + y * kP + at % kP;
      *reinterpret_cast<typename Two<T>::Vector*>(to) = {first, second};
    };
    put(x, four.x, four.y);
    put(x + 2, four.z, four.w);
  }
}

// A warp turns the pixels of a group into values, [patches, 3, kPlane].
template <typename T, int kP, int kSide, bool kComputed>
__device__ inline void Normalise(const uint8_t* pixels, uint64_t stride,
                                 int lane, const Line (&lines)[3],
                                 const T (*values)[256], T* staged) {
  using Shape = Group<kP, kSide>;
  // Issues all loads before waiting for the first.
  uint32_t words[Shape::kRounds][3];
#pragma unroll
  for (int i = 0; i < Shape::kRounds; ++i) {
    const int four = lane + i * kWarp;
    if (four < Shape::kFours) {
      const uint32_t* from = reinterpret_cast<const uint32_t*>(
          pixels + four / Shape::kFoursOfRow * stride +
          four % Shape::kFoursOfRow * 12);
#pragma unroll
      for (int word = 0; word < 3; ++word) words[i][word] = __ldg(from + word);
    }
  }
#pragma unroll
  for (int i = 0; i < Shape::kRounds; ++i) {
    const int four = lane + i * kWarp;
    if (four < Shape::kFours) {
#pragma unroll
      for (int c = 0; c < 3; ++c) {
        PutFour<T, kP>(ValuesOf<T, kComputed>(words[i], c, lines[c], values), c,
                       four / Shape::kFoursOfRow, four % Shape::kFoursOfRow * 4,
                       staged);
      }
    }
  }
}

// A warp writes the rows of a group: each channel of each patch kTp times.
template <typename T, int kP, int kSide, int kTp>
__device__ inline void StoreRows(const T* staged, int lane, T* out) {
  constexpr int kPlane = kP * kP * sizeof(T);  // bytes
  constexpr int kChunks = Group<kP, kSide>::kAcross * 3 * kTp * kPlane / 16;
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(staged);
#pragma unroll 2
  for (int chunk = lane; chunk < kChunks; chunk += kWarp) {
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

// A warp writes one frame of the rows of a group: each channel of each patch
// into place `tp` of the kTp that it has.
template <typename T, int kP, int kSide, int kTp>
__device__ inline void StoreFrame(const T* staged, int tp, int lane, T* out) {
  constexpr int kPlane = kP * kP * sizeof(T);  // bytes
  using Chunk = std::conditional_t<kPlane % 16 == 0, uint4, uint2>;
  constexpr int kOfPlane = kPlane / sizeof(Chunk);
  constexpr int kChunks = Group<kP, kSide>::kAcross * 3 * kOfPlane;
  const Chunk* from = reinterpret_cast<const Chunk*>(staged);
  Chunk* to = reinterpret_cast<Chunk*>(out);
#pragma unroll 2
  for (int chunk = lane; chunk < kChunks; chunk += kWarp) {
    __stcs(to + (chunk / kOfPlane * kTp + tp) * kOfPlane + chunk % kOfPlane,
           from[chunk]);
  }
}

// ---- Kernels ----------------------------------------------------------------

// The optimised kernel for patches of channels. A token is kDown x kSide
// patches, which merge or, in raster order, are one or two side by side. A
// block takes `tokens_of_block` consecutive tokens, a warp one group of patches
// at a time: it converts pixels to values in shared memory, then writes them in
// whole chunks of 16 bytes, neighbouring lanes to neighbouring addresses. A
// warp reads from a few rows of pixels, whose other bytes its block reads next.
//
// kFrames: images may have kTp frames instead of one, which a warp takes one
// after the other.
template <typename T, int kP, int kDown, int kSide, int kTp, bool kComputed,
          bool kFrames>
__global__ void __launch_bounds__(kThreads)
    PatchifyTokens(const Arguments<T> a, uint32_t tokens_of_block) {
  using Shape = Group<kP, kSide>;
  constexpr int kRow =
      3 * kTp * Shape::kPlane;  // values of a row of the output
  constexpr int kGroups = kDown * kSide / Shape::kAcross;  // of a token
  constexpr int kOfRow = kSide / Shape::kAcross;           // side by side in it
  // Half a chunk never spans two channels.
  static_assert(Shape::kAcross * kRow * sizeof(T) % 16 == 0 &&
                Shape::kPlane * sizeof(T) % 8 == 0);
  __shared__ Corner corners[kMaxTokensOfBlock];
  __shared__ T values[kComputed ? 1 : 3][256];
  alignas(16) __shared__ T staged[kWarps][Shape::kAcross * 3 * Shape::kPlane];
  const uint64_t first = uint64_t{blockIdx.x} * tokens_of_block;
  const uint64_t tokens = a.rows / (kDown * kSide);
  const uint32_t count = tokens - first < tokens_of_block
                             ? static_cast<uint32_t>(tokens - first)
                             : tokens_of_block;
  if (threadIdx.x < count) {
    corners[threadIdx.x] =
        FindCorner<T, kP, kDown, kSide>(a, first + threadIdx.x);
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
  for (uint32_t group = threadIdx.x / kWarp; group < count * kGroups;
       group += kWarps) {
    const Corner corner = corners[group / kGroups];
    const uint32_t y = group % kGroups / kOfRow;
    const uint32_t x = group % kOfRow;
    const uint8_t* pixels = corner.first + y * kP * corner.stride + x * kP * 3;
    const uint64_t row = a.first_row + first * (kDown * kSide) +
                         uint64_t{group} * Shape::kAcross;
    T* const out = a.out + row * kRow;
    Normalise<T, kP, kSide, kComputed>(pixels, corner.stride, lane, a.lines,
                                       values, own);
    __syncwarp();
    if (!kFrames || corner.frame_stride == 0) {
      StoreRows<T, kP, kSide, kTp>(own, lane, out);
    } else {
      StoreFrame<T, kP, kSide, kTp>(own, 0, lane, out);
      for (int tp = 1; tp < kTp; ++tp) {
        __syncwarp();
        Normalise<T, kP, kSide, kComputed>(pixels + tp * corner.frame_stride,
                                           corner.stride, lane, a.lines, values,
                                           own);
        __syncwarp();
        StoreFrame<T, kP, kSide, kTp>(own, tp, lane, out);
      }
    }
    __syncwarp();
  }
}

// The simple kernel, for any shape: each thread computes one value at a time by
// the formula of patchify.h.
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
    const uint64_t number = row - image.first_row;
    if (number >= uint64_t{image.grid_h} * image.grid_w) {
      a.out[row * columns + column] = T();  // padding
      continue;
    }
    const uint64_t token = number / (m * m);
    const uint64_t within = number % (m * m);
    const uint64_t across = image.grid_w / m;
    const uint64_t pixel = shape.channels_last ? column / 3 : column % (p * p);
    const uint64_t c = shape.channels_last
                           ? column % 3
                           : column / (shape.temporal_patch * p * p);
    // Patches with channels_last have one frame.
    const uint64_t tp = column / (p * p) % shape.temporal_patch;
    const uint64_t frame = tp < image.frames ? tp : image.frames - 1;
    const uint64_t y = (token / across * m + within / m) * p + pixel / p;
    const uint64_t x = (token % across * m + within % m) * p + pixel % p;
    const uint8_t byte =
        a.pixels[image.pixel_offset + frame * image.frame_stride +
                 3 * (y * image.width + x) + c];
    a.out[row * columns + column] = values[c][byte];
  }
}

// ---- Other forms than patches of channels: tiles, and padded patches --------

// A block copies the table to its shared memory, unless it computes values.
template <typename T, bool kComputed>
__device__ inline void LoadValues(const Values& all, T (*values)[256]) {
  if constexpr (!kComputed) {
    const T(*table)[256] = TableOf(all, T());
    for (int i = threadIdx.x; i < 3 * 256; i += kThreads) {
      values[i / 256][i % 256] = table[i / 256][i % 256];
    }
    __syncthreads();
  }
}

// The optimised kernel for tiles. A thread takes eight pixels of a line at a
// time and writes as many neighbouring values of each channel, and zeros to the
// right of the crop and below it. `width`, the tile's, is a multiple of 8, as
// are all crops' widths. If all crops are as large as the tile, the caller may
// pass the tile as one line (`flat`), whose number of pixels is a multiple of
// 8.
template <typename T, bool kComputed>
__global__ void __launch_bounds__(kThreads)
    PatchifyTiles(const Arguments<T> a, uint32_t height, uint64_t width,
                  bool flat) {
  using Vector = typename Four<T>::Vector;
  __shared__ T values[kComputed ? 1 : 3][256];
  LoadValues<T, kComputed>(*a.values, values);
  const uint64_t eights_of_line = width / 8;
  const uint64_t eights = eights_of_line * height;
  const uint64_t threads = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
       i < a.rows * eights; i += threads) {
    const uint64_t tile = i / eights;
    const uint64_t eight = i % eights;
    const uint64_t y = eight / eights_of_line;
    const uint64_t x = eight % eights_of_line;
    const PatchifyImage& image = a.images[tile];
    const bool inside = flat || (y < image.height && x * 8 < image.width);
    uint32_t first[3] = {};
    uint32_t second[3] = {};
    if (inside) {
      const uint64_t line = flat ? 0 : uint64_t{3} * image.width * y;
      const uint2* from = reinterpret_cast<const uint2*>(
          a.pixels + image.pixel_offset + line + x * 24);
      const uint2 low = __ldg(from);
      const uint2 middle = __ldg(from + 1);
      const uint2 high = __ldg(from + 2);
      first[0] = low.x;
      first[1] = low.y;
      first[2] = middle.x;
      second[0] = middle.y;
      second[1] = high.x;
      second[2] = high.y;
    }
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      T* to = a.out + ((a.first_row + tile) * 3 + c) * eights * 8 + eight * 8;
      struct alignas(16) {
        Vector fours[2];
      } both = {};
      if (inside) {
        both.fours[0] = ValuesOf<T, kComputed>(first, c, a.lines[c], values);
        both.fours[1] = ValuesOf<T, kComputed>(second, c, a.lines[c], values);
      }
      const uint4* chunks = reinterpret_cast<const uint4*>(&both);
#pragma unroll
      for (int k = 0; k < int(sizeof(both) / 16); ++k) {
        __stcs(reinterpret_cast<uint4*>(to) + k, chunks[k]);
      }
    }
  }
}

// The simple kernel for tiles, of any sides: a value at a time.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    PatchifyTileValues(const Arguments<T> a, uint32_t height, uint32_t width) {
  const uint64_t plane = uint64_t{height} * width;
  const T(*values)[256] = TableOf(*a.values, T());
  const uint64_t threads = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
       i < a.rows * 3 * plane; i += threads) {
    const PatchifyImage& image = a.images[i / (3 * plane)];
    const uint64_t c = i / plane % 3;
    const uint64_t y = i % plane / width;
    const uint64_t x = i % width;
    T value = T();
    if (y < image.height && x < image.width) {
      value =
          values[c]
                [a.pixels[image.pixel_offset + 3 * (y * image.width + x) + c]];
    }
    a.out[a.first_row * 3 * plane + i] = value;
  }
}

// The optimised kernel for patches with interleaved channels: a thread turns
// four bytes into four values, or writes four zeros of padding. The lines of
// all crops are words (LinesAreWords).
template <typename T, int kP>
__global__ void __launch_bounds__(kThreads)
    PatchifyPixels(const Arguments<T> a) {
  using Vector = typename Four<T>::Vector;
  constexpr uint32_t kWordsOfPatch = 3 * kP * kP / 4;
  __shared__ T values[3][256];
  LoadValues<T, false>(*a.values, values);
  const uint64_t threads = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
       i < a.rows * kWordsOfPatch; i += threads) {
    const uint64_t row = a.first_row + i / kWordsOfPatch;
    const uint32_t word = i % kWordsOfPatch;
    const PatchifyImage image = FindImage(a.images, a.image_count, row);
    const uint64_t number = row - image.first_row;
    Vector four = {};
    if (number < uint64_t{image.grid_h} * image.grid_w) {
      const uint32_t* from =
          reinterpret_cast<const uint32_t*>(a.pixels + image.pixel_offset) +
          WordOfPatch<kP>(number, word, image.grid_w, image.width);
      const uint32_t bytes = __ldg(from);
      const auto value = [&](uint32_t n) {
        return values[(word * 4 + n) % 3][bytes >> n * 8 & 0xFF];
      };
      four = {value(0), value(1), value(2), value(3)};
    }
    reinterpret_cast<Vector*>(a.out)[row * kWordsOfPatch + word] = four;
  }
}

}  // namespace
}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_PATCHIFY_KERNELS_CUH_
