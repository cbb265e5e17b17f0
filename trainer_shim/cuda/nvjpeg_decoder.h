#ifndef BALLAST_TRAINER_SHIM_CUDA_NVJPEG_DECODER_H_
#define BALLAST_TRAINER_SHIM_CUDA_NVJPEG_DECODER_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// The part of nvJPEG's C interface that the shim calls, declared here: a CUDA
// toolkit need not have nvJPEG's header, and the library is found at run time
// (docs/decisions/0027-nvjpeg-without-its-header.md). nvjpeg_api_test compares
// these with NVIDIA's header if there is one.
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
// Both functions return 0 if they succeed.
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
  // Sets `is_supported` to 0 if the backend decodes the image.
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
// came from; else the copy that is linked into the program; else the system's,
// which is then loaded. The search runs at the first call; its result is kept
// until the process ends. Thread-safe. Errors: FAILED_PRECONDITION (there is
// none, or it lacks a function).
absl::StatusOr<const NvjpegApi*> LoadNvjpeg();

// INTERNAL, or OK for nvjpeg::kSuccess. `what` names the failed operation.
absl::Status NvjpegStatus(nvjpeg::Status status, absl::string_view what);

// nvJPEG's batched decoding on the GPU's JPEG engines: one handle, one state.
// Thread-compatible.
class NvjpegDecoder {
 public:
  // Defaults as nvJPEG's own; benchmarks try other values.
  struct Options {
    int backend = nvjpeg::kBackendHardware;
    unsigned flags = nvjpeg::kFlagsDefault;
    // Chroma sampling for which Prepare makes memory ready; negative: Prepare
    // does nothing.
    int prepare = nvjpeg::kCss444;
  };

  // For the current device. All work and all device memory are in the order of
  // `stream`, which must outlive the decoder. Errors: FAILED_PRECONDITION (no
  // nvJPEG, or a GPU without JPEG engines).
  static absl::StatusOr<std::unique_ptr<NvjpegDecoder>> Create(
      cudaStream_t stream, const Options& options);
  static absl::StatusOr<std::unique_ptr<NvjpegDecoder>> Create(
      cudaStream_t stream) {
    return Create(stream, Options());
  }
  // The stream's work must be done.
  ~NvjpegDecoder();
  NvjpegDecoder(const NvjpegDecoder&) = delete;
  NvjpegDecoder& operator=(const NvjpegDecoder&) = delete;

  // Images that the engines decode at the same time. A batch of one more takes
  // twice as long.
  size_t at_a_time() const { return at_a_time_; }

  // Whether the engines decode an image; reads its header only.
  bool Takes(const EncodedJpeg& image);

  // Enqueues the decoding of `images`, at least one. Blocks while nvJPEG reads
  // the files, which must stay valid until the stream is done. Errors: INTERNAL
  // (nvJPEG's status); other work on the stream goes on.
  absl::Status Enqueue(absl::Span<const EncodedJpeg* const> images);

 private:
  NvjpegDecoder(const NvjpegApi* api, cudaStream_t stream,
                const Options& options);
  absl::Status Start();
  bool Parse(absl::string_view bytes);
  // Makes nvJPEG's memory large enough for batches of `batch` images, and for
  // the largest batch and picture so far. Without it nvJPEG is half as fast
  // over mixed sizes, and slows the trainer's work down, as if it freed memory
  // each time (docs/measurements/images.md).
  void Prepare(absl::Span<const EncodedJpeg* const> images, size_t batch);

  // Memory of one kind for nvJPEG. Memory that it gives back is kept for its
  // next request: freeing page-locked memory waits for the device, and memory
  // that is freed in stream order is mapped anew after every wait.
  class Memory {
   public:
    using Make = cudaError_t (*)(void** memory, size_t size,
                                 cudaStream_t stream);
    using Free = cudaError_t (*)(void* memory, cudaStream_t stream);
    Memory(Make make, Free free, cudaStream_t stream)
        : make_(make), free_(free), stream_(stream) {}
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    nvjpeg::Allocator allocator();

   private:
    struct Piece {
      void* memory = nullptr;
      size_t size = 0;
      bool used = false;
    };
    static int Allocate(void* context, void** memory, size_t size,
                        cudaStream_t stream);
    static int Release(void* context, void* memory, size_t size,
                       cudaStream_t stream);
    const Make make_;
    const Free free_;
    const cudaStream_t stream_;
    std::vector<Piece> pieces_;
  };

  const NvjpegApi* const api_;
  const cudaStream_t stream_;
  const Options options_;
  Memory device_memory_;
  Memory pinned_memory_;
  nvjpeg::Allocator device_allocator_;
  nvjpeg::Allocator pinned_allocator_;
  nvjpeg::Handle* handle_ = nullptr;
  nvjpeg::State* state_ = nullptr;
  nvjpeg::Stream* header_ = nullptr;
  size_t at_a_time_ = 1;
  size_t batch_ = 0;  // images for which the state was last prepared
  // Sides and number of images for which memory was last prepared.
  uint32_t width_ = 0, height_ = 0;
  size_t most_ = 0;
  std::vector<const unsigned char*> data_;
  std::vector<size_t> lengths_;
  std::vector<nvjpeg::Image> images_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NVJPEG_DECODER_H_
