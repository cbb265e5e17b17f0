#include "trainer_shim/cuda/patchify_cuda.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"
#include "trainer_shim/cuda/kernel_loading.h"
#include "trainer_shim/cuda/patchify_kernels.cuh"

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

bool InWords(const PatchifyBatch& batch) {
  return Aligned(batch.pixels, 4) &&
         std::all_of(batch.images.begin(), batch.images.end(),
                     [](const PatchifyImage& image) {
                       return image.pixel_offset % 4 == 0;
                     });
}

template <typename T>
using TokenKernel = void (*)(Arguments<T>, uint32_t);

// The optimised kernel for a shape, or null.
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

// Number of blocks for `items` at `items_of_block` each.
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

// The line through each channel's values, if it reproduces all of them in
// bfloat16.
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

absl::Status LoadAll(const PatchShape& shape) {
  return LoadKernels(
      {reinterpret_cast<const void*>(ChooseKernel<float>(shape, false)),
       reinterpret_cast<const void*>(ChooseKernel<uint16_t>(shape, false)),
       reinterpret_cast<const void*>(ChooseKernel<uint16_t>(shape, true)),
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
  patchifier.lines_ = LinesOf(table);
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&patchifier.multiprocessors_,
                                        cudaDevAttrMultiProcessorCount, device),
                 "asking for the number of multiprocessors"));
  BALLAST_RETURN_IF_ERROR(LoadAll(shape));
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
