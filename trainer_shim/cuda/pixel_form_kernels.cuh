// The device code of patchify_cuda.cu for other forms than patches of channels:
// tiles, and padded patches. Only that file includes this.
#ifndef BALLAST_TRAINER_SHIM_CUDA_PIXEL_FORM_KERNELS_CUH_
#define BALLAST_TRAINER_SHIM_CUDA_PIXEL_FORM_KERNELS_CUH_

#include <cstdint>

#include "trainer_shim/cuda/patchify_kernels.cuh"
#include "trainer_shim/pixel_arithmetic.h"

namespace ballast {
namespace {

// ---- Device helpers ---------------------------------------------------------

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

// ---- Kernels ----------------------------------------------------------------

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

#endif  // BALLAST_TRAINER_SHIM_CUDA_PIXEL_FORM_KERNELS_CUH_
