#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_IMAGE_DECODER_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_IMAGE_DECODER_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/image/resample_weights.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/plane_kernels.h"
#include "trainer_shim/jpeg_engine.h"
#include "trainer_shim/jpeg_feed.h"
#include "trainer_shim/resample_plan.h"

namespace ballast {

// Decodes to planes in device memory: on the GPU's JPEG engines through
// nvJPEG's hardware backend, and on the host (CpuJpegEngine, then a copy) for
// images that they refuse, or for all images if there are no engines or no
// nvJPEG. Work on the device runs on a separate stream of high priority:
// nvJPEG's conversion kernels would otherwise wait for free multiprocessors.
// Thread-compatible: give each batch in flight its own engine and thread.
class DeviceJpegEngine final : public JpegEngine {
 public:
  enum class Hardware {
    kIfThere,  // the host decodes without it
    kNever,    // the host decodes all
  };

  // For the current device, which must be current when it is destroyed; Decode
  // may be called from any thread. Missing engines are no error: hardware()
  // says why. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<DeviceJpegEngine>> Create(
      Hardware hardware);
  // Waits for the device.
  ~DeviceJpegEngine() override;

  // Blocks, without spinning, until the planes are complete: work that is
  // enqueued on any stream afterwards may read them. If the engines fail on a
  // batch, the host decodes all of it. Further errors: as CudaStatus.
  absl::Status Decode(absl::Span<const EncodedJpeg> images) override;

  JpegEngineCounts counts() const override;

  // Images that the engines decode at the same time; 1 without engines.
  size_t at_a_time() const;

  // OK if engines decode; else FAILED_PRECONDITION with the reason.
  const absl::Status& hardware() const;

 private:
  class Impl;
  explicit DeviceJpegEngine(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// An encoded image and the place of its pixels.
struct EncodedImage {
  absl::string_view bytes;  // a JPEG that JudgeForEngines does not refuse
  PlaneForm form;           // as JudgeForEngines returns it
  uint32_t out_width = 0;
  uint32_t out_height = 0;
  uint64_t out = 0;  // bytes from the first pixel; [out_height, out_width, 3]
  uint64_t position = 0;  // of its sample, for messages
};

// Decodes and resizes batches of encoded images to 8-bit RGB in device memory:
// JPEG engines, then the kernels of plane_kernels.h, to the bit as the server
// does. Work is divided into chunks of bounded memory, each of as many images
// as the engines decode at a time. A chunk may hold the end of one batch and
// the beginning of the next (JpegFeed). Several chunks are in flight, so that
// the engines are not idle between them. Device memory: at most
// `options.memory` bytes, or the need of the largest image for each slot
// (DecodeMemory) if that is more; twice that while buffers grow; the tables;
// and nvJPEG's own memory. One thread may begin batches while another finishes
// earlier ones; else thread-compatible.
class DeviceImageDecoder {
 public:
  struct Options {
    // Number of JPEG engines, each of which works on one chunk at a time,
    // prepared by a separate thread.
    size_t engines = 2;
    // Images of a chunk; 0: as many as the engines decode at a time, and twice
    // that in large batches.
    size_t images = 0;
    // Chunks of each engine that may be begun and not done: one that it
    // decodes, and chunks on the way to it or from it.
    size_t chunks = JpegEngineQueue::kBatchesOfEngine;
    uint64_t memory = uint64_t{1} << 30;  // bytes on the device, all slots
    // Whether images of similar sizes are decoded together.
    bool by_size = true;
    DeviceJpegEngine::Hardware hardware = DeviceJpegEngine::Hardware::kIfThere;
    Resampling resampling = {};  // of all images, as ResamplePlanner's
  };

  // For the current device, which must be current in all calls. Errors: as
  // CudaStatus.
  static absl::StatusOr<std::unique_ptr<DeviceImageDecoder>> Create(
      const Options& options);
  // Waits for the engines and for the device's work on batches begun.
  ~DeviceImageDecoder();
  DeviceImageDecoder(const DeviceImageDecoder&) = delete;
  DeviceImageDecoder& operator=(const DeviceImageDecoder&) = delete;

  using Ticket = uint64_t;

  // Begins a batch. The files' bytes, in host memory, must stay valid until
  // Finish returns, or any call fails; `out`, in device memory, must be free to
  // write once `free` is done; `free` is recorded and stays so until Finish
  // returns. Engines do not wait for `free`. The last images may wait for
  // images of the next batch, until Finish. Blocks while more chunks are begun
  // than there are slots. Errors: as JpegEngine::Decode, of this or an earlier
  // batch; as ResamplePlanner::Plan; as CudaStatus. After an error every later
  // call returns it, and no engine reads a file.
  absl::StatusOr<Ticket> Begin(absl::Span<const EncodedImage> images,
                               uint8_t* out, cudaEvent_t free = nullptr);

  // Blocks until the engines have decoded the batch and all before it, and
  // makes work enqueued on `stream` from now on wait for its pixels. Errors: as
  // Begin.
  absl::Status Finish(Ticket ticket, cudaStream_t stream);

  JpegEngineCounts counts() const { return chunks_->counts(); }
  // OK if JPEG engines decode; else FAILED_PRECONDITION with the reason.
  const absl::Status& hardware() const { return hardware_; }

 private:
  struct Slot {
    StreamBuffer planes;
    StreamBuffer narrow;
    StreamBuffer tables;
    PinnedBuffer host_tables;
    Event done;  // the kernels of the slot's last chunk
    std::vector<ResampleRequest> requests;
    ResamplePlan plan;
    uint8_t* out = nullptr;         // base of the requests' offsets
    std::vector<cudaEvent_t> free;  // Begin's, of each batch in the chunk
  };
  // An image on its way to a chunk.
  struct Image {
    EncodedImage image;
    uint64_t memory = 0;
    uint8_t* out = nullptr;  // its batch's
    cudaEvent_t free = nullptr;
  };

  explicit DeviceImageDecoder(const Options& options)
      : options_(options), planner_(options.resampling) {}
  // Makes a slot ready for a chunk and plans its kernels, while the engines
  // have earlier chunks; returns the chunk's files and planes.
  absl::StatusOr<absl::Span<const EncodedJpeg>> Fill(
      size_t slot, absl::Span<const Image> images);
  // Enqueues the kernels of a chunk that the engines have decoded.
  absl::Status LaunchKernels(Slot* slot);

  const Options options_;
  CudaStream stream_;
  std::vector<Slot> slots_;
  std::unique_ptr<PlaneKernels> kernels_;
  absl::Status hardware_;
  std::vector<EncodedJpeg> jpegs_;  // used by one Fill at a time
  std::vector<Image> images_;       // used by the thread that begins
  bool falling_ = false;     // whether its last batch began with the largest
  ResamplePlanner planner_;  // likewise
  std::unique_ptr<JpegChunks> chunks_;
  std::unique_ptr<JpegFeed<Image>> feed_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_IMAGE_DECODER_H_
