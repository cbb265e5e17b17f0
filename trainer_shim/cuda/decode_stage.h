#ifndef BALLAST_TRAINER_SHIM_CUDA_DECODE_STAGE_H_
#define BALLAST_TRAINER_SHIM_CUDA_DECODE_STAGE_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer_shim/cuda/batch_stager.h"
#include "trainer_shim/cuda/device_batch.h"
#include "trainer_shim/cuda/device_image_decoder.h"
#include "trainer_shim/cuda/device_stage.h"
#include "trainer_shim/decode_line.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// Decodes the encoded images of batches between the two parts of a DeviceStage:
// JPEG engines are driven by the host, which must wait until the files have
// arrived. The stage's own threads do that, so that the trainer's thread does
// not. Three batches are in flight: while one is resampled and packed, the
// engines have the next ones' files. Files of the rank's own block are read in
// place, in pinned memory or the server's arena, while the exchange goes on;
// received files are read in StagedBatch::received. Begin, Finish and the
// destructor must be called from one thread.
class DecodeStage {
 public:
  // Batches that may be begun and not finished; the DeviceStage needs as many
  // landing buffers.
  static constexpr size_t kBatches = DecodeLine::kBatches;

  // Called for each batch once all its device work is enqueued, in order, from
  // a thread of the stage. Must not wait.
  using OnEnqueued = std::function<void(const DeviceEntry& entry)>;

  // For `device`, which must be current here and at the end. `stage` is not
  // owned. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<DecodeStage>> Create(
      int device, DeviceStage* stage,
      const DeviceImageDecoder::Options& options, OnEnqueued on_enqueued);
  // Waits for the batches begun: their exchange must end, if only by an abort.
  ~DecodeStage();
  DecodeStage(const DecodeStage&) = delete;
  DecodeStage& operator=(const DecodeStage&) = delete;

  // Begins the batch of the DeviceStage's last Launch, which has encoded
  // images. At most kBatches are begun and not finished; both arguments stay
  // valid until then. Never blocks.
  void Begin(DeviceEntry* entry, StagedBatch* staged);

  // Blocks until all device work of the oldest unfinished batch is enqueued,
  // and so until the engines have done their part; OK at once if there is none.
  // Errors: DATA_LOSS (an image that cannot be decoded), UNAVAILABLE (the
  // server overwrote the block), as CudaStatus and DeviceStage::Finish.
  absl::Status Finish() { return line_->Finish(); }

  // Counts of the images that engines and host have decoded so far. From any
  // thread.
  JpegEngineCounts counts() const;
  // OK if JPEG engines decode; else FAILED_PRECONDITION with the reason.
  const absl::Status& hardware() const;

 private:
  class Steps;
  explicit DecodeStage(std::unique_ptr<Steps> steps);

  const std::unique_ptr<Steps> steps_;
  const std::unique_ptr<DecodeLine> line_;  // destroyed first: joins
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DECODE_STAGE_H_
