#ifndef BALLAST_TRAINER_SHIM_CUDA_NVJPEG_DECODER_H_
#define BALLAST_TRAINER_SHIM_CUDA_NVJPEG_DECODER_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer_shim/cuda/nvjpeg_api.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// nvJPEG's batched decoding on the GPU's JPEG engines: one handle, one state.
// Thread-compatible.
class NvjpegDecoder {
 public:
  // As nvJPEG's own; benchmarks try others than the defaults.
  struct Options {
    int backend = nvjpeg::kBackendHardware;
    unsigned flags = nvjpeg::kFlagsDefault;
    // Chroma sampling that Prepare makes memory ready for; negative: it does
    // nothing.
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
  // the files; they must stay valid until the stream is done. Errors: INTERNAL
  // (nvJPEG's status), after which the stream's other work is unharmed.
  absl::Status Enqueue(absl::Span<const EncodedJpeg* const> images);

 private:
  NvjpegDecoder(const NvjpegApi* api, cudaStream_t stream,
                const Options& options);
  absl::Status Start();
  bool Parse(absl::string_view bytes);
  // Makes nvJPEG's memory large enough for batches of `batch` images, and for
  // the largest batch and picture so far. Without it nvJPEG is half as fast
  // over mixed sizes, and slows the trainer's work down, as if it freed memory
  // each time (docs/performance.md).
  void Prepare(absl::Span<const EncodedJpeg* const> images, size_t batch);

  // Memory of one kind for nvJPEG. What it gives back is kept for its next
  // request: freeing page-locked memory waits for the device, and memory that
  // is freed in stream order is mapped anew after every wait.
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
  size_t batch_ = 0;  // images that the state was last made ready for
  // Sides and images that memory was last made ready for.
  uint32_t width_ = 0, height_ = 0;
  size_t most_ = 0;
  std::vector<const unsigned char*> data_;
  std::vector<size_t> lengths_;
  std::vector<nvjpeg::Image> images_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NVJPEG_DECODER_H_
