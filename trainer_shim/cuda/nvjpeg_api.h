#ifndef BALLAST_TRAINER_SHIM_CUDA_NVJPEG_API_H_
#define BALLAST_TRAINER_SHIM_CUDA_NVJPEG_API_H_

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// The part of nvJPEG's C interface that the shim calls, declared here: a CUDA
// toolkit need not have nvJPEG's header, and the library is found at run time
// (docs/decisions/0027-nvjpeg-without-its-header.md). nvjpeg_api_test compares
// these with NVIDIA's header where there is one.
namespace nvjpeg {

using Status = int;  // nvjpegStatus_t
inline constexpr Status kSuccess = 0;

inline constexpr int kBackendHardware = 3;  // NVJPEG_BACKEND_HARDWARE
inline constexpr int kOutputYuv = 1;        // NVJPEG_OUTPUT_YUV
inline constexpr unsigned kFlagsDefault = 0;
inline constexpr int kCss444 = 0;  // NVJPEG_CSS_444

struct Handle;  // nvjpegHandle
struct State;   // nvjpegJpegState
struct Stream;  // nvjpegJpegStream: a parsed header

struct Image {  // nvjpegImage_t
  unsigned char* channel[4];
  size_t pitch[4];
};

// Memory in stream order: nvjpegDevAllocatorV2_t, nvjpegPinnedAllocatorV2_t.
// Both functions answer 0 if they succeed.
struct Allocator {
  int (*allocate)(void* context, void** memory, size_t size,
                  cudaStream_t stream);
  int (*release)(void* context, void* memory, size_t size, cudaStream_t stream);
  void* context;
};

}  // namespace nvjpeg

// nvJPEG's functions, from the library that the process uses.
struct NvjpegApi {
  nvjpeg::Status (*GetProperty)(int type, int* value) = nullptr;
  nvjpeg::Status (*CreateExV2)(int backend, nvjpeg::Allocator* device,
                               nvjpeg::Allocator* pinned, unsigned flags,
                               nvjpeg::Handle** handle) = nullptr;
  nvjpeg::Status (*Destroy)(nvjpeg::Handle* handle) = nullptr;
  nvjpeg::Status (*JpegStateCreate)(nvjpeg::Handle* handle,
                                    nvjpeg::State** state) = nullptr;
  nvjpeg::Status (*JpegStateDestroy)(nvjpeg::State* state) = nullptr;
  nvjpeg::Status (*JpegStreamCreate)(nvjpeg::Handle* handle,
                                     nvjpeg::Stream** stream) = nullptr;
  nvjpeg::Status (*JpegStreamDestroy)(nvjpeg::Stream* stream) = nullptr;
  nvjpeg::Status (*JpegStreamParseHeader)(nvjpeg::Handle* handle,
                                          const unsigned char* data,
                                          size_t length,
                                          nvjpeg::Stream* stream) = nullptr;
  // Answers 0 in `is_supported` if the backend decodes the image.
  nvjpeg::Status (*DecodeBatchedSupported)(nvjpeg::Handle* handle,
                                           nvjpeg::Stream* stream,
                                           int* is_supported) = nullptr;
  nvjpeg::Status (*DecodeBatchedInitialize)(nvjpeg::Handle* handle,
                                            nvjpeg::State* state,
                                            int batch_size, int max_cpu_threads,
                                            int output_format) = nullptr;
  // Makes room for batches of pictures of up to `width` and `height`.
  nvjpeg::Status (*DecodeBatchedPreAllocate)(nvjpeg::Handle* handle,
                                             nvjpeg::State* state,
                                             int batch_size, int width,
                                             int height, int subsampling,
                                             int output_format) = nullptr;
  nvjpeg::Status (*DecodeBatched)(nvjpeg::Handle* handle, nvjpeg::State* state,
                                  const unsigned char* const* data,
                                  const size_t* lengths,
                                  nvjpeg::Image* destinations,
                                  cudaStream_t stream) = nullptr;
  // JPEG engines of the handle's device, and images that each decodes at a
  // time.
  nvjpeg::Status (*GetHardwareDecoderInfo)(nvjpeg::Handle* handle,
                                           unsigned* engines,
                                           unsigned* cores) = nullptr;
};

// Finds nvJPEG 13: the libnvjpeg.so.13 that the process has loaded, wherever it
// came from; else the one that is linked into the program; else the system's,
// which is then loaded. The search runs at the first call; its result is kept
// until the process ends. Thread-safe. Errors: FAILED_PRECONDITION (there is
// none, or it lacks a function).
absl::StatusOr<const NvjpegApi*> LoadNvjpeg();

// INTERNAL, or OK for nvjpeg::kSuccess. `what` names the failed operation.
absl::Status NvjpegStatus(nvjpeg::Status status, absl::string_view what);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NVJPEG_API_H_
