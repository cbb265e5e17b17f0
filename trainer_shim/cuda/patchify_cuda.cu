#include "trainer_shim/cuda/patchify_cuda.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/patchify_kernels.cuh"
#include "trainer_shim/pixel_arithmetic.h"

namespace ballast {
namespace {

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

template <typename Condition>
bool AllImages(const PatchifyBatch& batch, Condition condition) {
  return std::all_of(batch.images.begin(), batch.images.end(), condition);
}

bool HasFrames(const PatchifyBatch& batch) {
  return !AllImages(
      batch, [](const PatchifyImage& image) { return image.frames == 1; });
}

// Whether every line of every image begins at a multiple of 4 bytes.
bool InWords(const PatchifyBatch& batch) {
  return Aligned(batch.pixels, 4) &&
         AllImages(batch, [](const PatchifyImage& image) {
           return LinesAreWords(image.pixel_offset, image.width) &&
                  image.frame_stride % 4 == 0;
         });
}

template <typename T>
using TokenKernel = void (*)(Arguments<T>, uint32_t);

// An optimised kernel for patches of channels; null if the shape has none.
template <typename T>
struct TokenChoice {
  TokenKernel<T> kernel = nullptr;
  uint32_t down = 1;  // patches of a token
  uint32_t side = 1;
};

// `frames`: the kernel for temporal patches that may have as many frames as
// they span.
template <typename T, bool kComputed>
TokenChoice<T> GetTokenChoice(const PatchShape& shape, bool frames) {
  if (shape.channels_last || shape.padded_rows != 0) return {};
  const auto is = [&](uint32_t patch, uint32_t merge, uint32_t temporal) {
    return shape.patch == patch && shape.merge == merge &&
           shape.temporal_patch == temporal;
  };
  if (frames) {
    if (is(14, 2, 2)) {
      return {PatchifyTokens<T, 14, 2, 2, 2, kComputed, true>, 2, 2};
    }
    if (is(16, 2, 2)) {
      return {PatchifyTokens<T, 16, 2, 2, 2, kComputed, true>, 2, 2};
    }
    return {};
  }
  if (is(14, 2, 2)) {
    return {PatchifyTokens<T, 14, 2, 2, 2, kComputed, false>, 2, 2};
  }
  if (is(16, 2, 2)) {
    return {PatchifyTokens<T, 16, 2, 2, 2, kComputed, false>, 2, 2};
  }
  if (is(14, 2, 1)) {
    return {PatchifyTokens<T, 14, 2, 2, 1, kComputed, false>, 2, 2};
  }
  if (is(14, 1, 1)) {
    return {PatchifyTokens<T, 14, 1, 2, 1, kComputed, false>, 1, 2};
  }
  if (is(16, 1, 1)) {
    return {PatchifyTokens<T, 16, 1, 1, 1, kComputed, false>, 1, 1};
  }
  return {};
}

template <typename T>
TokenChoice<T> ChooseTokens(const PatchShape& shape, bool computed,
                            bool frames) {
  if constexpr (sizeof(T) == sizeof(uint16_t)) {
    if (computed) return GetTokenChoice<T, true>(shape, frames);
  }
  return GetTokenChoice<T, false>(shape, frames);
}

// Whether the kernel can take this launch: words of pixels, whole tokens, rows
// that begin at whole chunks, and all frames of a patch or one.
template <typename T>
bool Fits(const TokenChoice<T>& choice, const PatchifyBatch& batch,
          const PatchShape& shape) {
  return choice.kernel != nullptr && InWords(batch) &&
         batch.images[0].first_row % kOutAlignment * shape.row() * sizeof(T) %
                 kOutAlignment ==
             0 &&
         AllImages(batch, [&](const PatchifyImage& image) {
           return image.grid_h % choice.down == 0 &&
                  image.grid_w % choice.side == 0 &&
                  (image.frames == 1 || image.frames == shape.temporal_patch);
         });
}

template <typename T>
using PixelKernel = void (*)(Arguments<T>);

// The optimised kernel for interleaved channels, or null.
template <typename T>
PixelKernel<T> ChoosePixels(const PatchShape& shape) {
  if (!shape.channels_last || shape.merge != 1) return nullptr;
  return shape.patch == 16 ? PatchifyPixels<T, 16> : nullptr;
}

template <typename T>
using TileKernel = void (*)(Arguments<T>, uint32_t, uint64_t, bool);

template <typename T>
TileKernel<T> ChooseTiles(bool computed) {
  if constexpr (sizeof(T) == sizeof(uint16_t)) {
    if (computed) return PatchifyTiles<T, true>;
  }
  return PatchifyTiles<T, false>;
}

// Number of blocks for `items` at `items_of_block` each.
uint64_t Blocks(uint64_t items, uint64_t items_of_block) {
  return (items + items_of_block - 1) / items_of_block;
}

template <typename T>
absl::Status LaunchTiles(const PatchifyBatch& batch, const PatchShape& shape,
                         const Arguments<T>& arguments, bool computed,
                         uint64_t most_blocks, cudaStream_t stream) {
  const uint64_t plane = uint64_t{shape.tile_h} * shape.tile_w;
  const bool aligned = batch.kernel == PatchifyKernel::kFastest &&
                       plane % 8 == 0 && Aligned(batch.pixels, 8) &&
                       AllImages(batch, [](const PatchifyImage& image) {
                         return image.pixel_offset % 8 == 0;
                       });
  const bool flat = AllImages(batch, [&](const PatchifyImage& image) {
    return image.height == shape.tile_h && image.width == shape.tile_w;
  });
  const bool lines =
      shape.tile_w % 8 == 0 && AllImages(batch, [](const PatchifyImage& image) {
        return image.width % 8 == 0;
      });
  const auto blocks_for = [most_blocks](uint64_t items) {
    return std::min(Blocks(items, kThreads), most_blocks);
  };
  constexpr absl::string_view what = "launch of patchify for tiles";
  if (aligned && (flat || lines)) {
    return EnqueueKernel(what, ChooseTiles<T>(computed),
                         {blocks_for(arguments.rows * plane / 8), kThreads},
                         stream, arguments, flat ? 1 : shape.tile_h,
                         flat ? plane : shape.tile_w, flat);
  }
  return EnqueueKernel(what, PatchifyTileValues<T>,
                       {blocks_for(arguments.rows * shape.row()), kThreads},
                       stream, arguments, shape.tile_h, shape.tile_w);
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
  if (shape.tiles()) {
    return LaunchTiles(batch, shape, arguments, lines.has_value(), resident * 8,
                       stream);
  }
  // Blocks that take `items` in turns, one a thread.
  const auto blocks_for = [resident](uint64_t items) {
    return std::min(Blocks(items, kThreads), resident * 8);
  };
  constexpr absl::string_view what = "launch of patchify";
  const bool fastest = batch.kernel == PatchifyKernel::kFastest;
  const TokenChoice<T> tokens_by =
      ChooseTokens<T>(shape, lines.has_value(), HasFrames(batch));
  const PixelKernel<T> pixels_by = ChoosePixels<T>(shape);
  if (fastest && Fits(tokens_by, batch, shape)) {
    const uint64_t tokens = rows / (tokens_by.down * tokens_by.side);
    const uint32_t each = static_cast<uint32_t>(
        std::clamp<uint64_t>(tokens / (4 * resident), 1, kMaxTokensOfBlock));
    const uint64_t blocks = Blocks(tokens, each);
    if (blocks > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat(rows, " patches are more than a launch can hold"));
    }
    return EnqueueKernel(what, tokens_by.kernel, {blocks, kThreads}, stream,
                         arguments, each);
  }
  if (fastest && pixels_by != nullptr && InWords(batch)) {
    return EnqueueKernel(what, pixels_by,
                         {blocks_for(rows * shape.row() / 4), kThreads}, stream,
                         arguments);
  }
  return EnqueueKernel(what, PatchifyValues<T>,
                       {blocks_for(rows * shape.row()), kThreads}, stream,
                       arguments, shape);
}

// The line through each channel's values, if it reproduces all of them in
// bfloat16.
std::optional<CudaPatchifier::Lines> GetLines(const NormaliseTable& table) {
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

absl::Status LoadAll(const PatchShape& shape) {
  for (const bool frames : {false, true}) {
    BALLAST_RETURN_IF_ERROR(
        LoadKernels({reinterpret_cast<const void*>(
                         ChooseTokens<float>(shape, false, frames).kernel),
                     reinterpret_cast<const void*>(
                         ChooseTokens<uint16_t>(shape, false, frames).kernel),
                     reinterpret_cast<const void*>(
                         ChooseTokens<uint16_t>(shape, true, frames).kernel)}));
  }
  return LoadKernels(
      {reinterpret_cast<const void*>(ChooseTiles<float>(false)),
       reinterpret_cast<const void*>(ChooseTiles<uint16_t>(false)),
       reinterpret_cast<const void*>(ChooseTiles<uint16_t>(true)),
       reinterpret_cast<const void*>(ChoosePixels<float>(shape)),
       reinterpret_cast<const void*>(ChoosePixels<uint16_t>(shape)),
       reinterpret_cast<const void*>(PatchifyTileValues<float>),
       reinterpret_cast<const void*>(PatchifyTileValues<uint16_t>),
       reinterpret_cast<const void*>(PatchifyValues<float>),
       reinterpret_cast<const void*>(PatchifyValues<uint16_t>)});
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
  patchifier.lines_ = GetLines(table);
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&patchifier.multiprocessors_,
                                        cudaDevAttrMultiProcessorCount, device),
                 "asking for the number of multiprocessors"));
  BALLAST_RETURN_IF_ERROR(LoadAll(shape));
  return patchifier;
}

absl::Status CudaPatchifier::Launch(const PatchifyBatch& batch,
                                    cudaStream_t stream) const {
  PatchShape shape = shape_;
  shape.tile_h = batch.tile_h;
  shape.tile_w = batch.tile_w;
  BALLAST_ASSIGN_OR_RETURN(
      const uint64_t rows,
      CheckImages(batch.images, shape, batch.pixel_bytes, batch.out_rows));
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
             ? LaunchAs<float>(batch, shape, rows, values_.data(), lines_,
                               multiprocessors_, stream)
             : LaunchAs<uint16_t>(batch, shape, rows, values_.data(), lines_,
                                  multiprocessors_, stream);
}

}  // namespace ballast
