#ifndef BALLAST_TRAINER_SHIM_CUDA_DECODE_STAGE_H_
#define BALLAST_TRAINER_SHIM_CUDA_DECODE_STAGE_H_

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "trainer_shim/cuda/batch_stager.h"
#include "trainer_shim/cuda/device_entry.h"
#include "trainer_shim/cuda/device_image_decoder.h"
#include "trainer_shim/cuda/device_stage.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// Decodes the encoded images of batches between the two parts of a DeviceStage:
// JPEG engines are driven by the host, which must wait until the files have
// arrived. A thread of its own does that, so that the trainer's does not. Files
// of the rank's own block are read where it lies, in pinned memory or the
// server's arena, while the exchange goes on; received ones in
// StagedBatch::received. Begin, Finish and the
// destructor must be called from one thread.
class DecodeStage {
 public:
  // For `device`, which must be current here and at the end. `stage` is not
  // owned. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<DecodeStage>> Create(
      int device, DeviceStage* stage,
      const DeviceImageDecoder::Options& options);
  // Waits for the batch begun: its exchange must end, if only by an abort.
  ~DecodeStage();
  DecodeStage(const DecodeStage&) = delete;
  DecodeStage& operator=(const DecodeStage&) = delete;

  // Begins the batch of the DeviceStage's last Launch, which has encoded
  // images. At most one batch is begun and not finished; both arguments stay
  // valid until then. Never blocks.
  void Begin(DeviceEntry* entry, StagedBatch* staged);

  // Blocks until all device work of the batch begun is enqueued, which takes
  // the engines' part; OK at once if none is. Errors: DATA_LOSS (an image that
  // cannot be decoded), UNAVAILABLE (the server overwrote the block), as
  // CudaStatus and DeviceStage::Finish.
  absl::Status Finish();

  // What engines and host have decoded so far. From any thread.
  JpegEngineCounts counts() const { return decoder_->counts(); }
  // OK if JPEG engines decode; else FAILED_PRECONDITION with the reason.
  const absl::Status& hardware() const { return decoder_->hardware(); }

 private:
  struct Job {
    DeviceEntry* entry = nullptr;
    StagedBatch* staged = nullptr;
  };

  DecodeStage(int device, DeviceStage* stage,
              std::unique_ptr<DeviceImageDecoder> decoder)
      : device_(device), stage_(stage), decoder_(std::move(decoder)) {}

  void Run();
  absl::Status Work(const Job& job);
  absl::Status Decode(const StagedBatch& staged);
  // Begins to decode the images that were received, or the others, and enqueues
  // the grey of those of placeholders.
  absl::StatusOr<DeviceImageDecoder::Ticket> Begin(const StagedBatch& staged,
                                                   bool received);

  const int device_;
  DeviceStage* const stage_;
  const std::unique_ptr<DeviceImageDecoder> decoder_;
  std::vector<EncodedImage> images_;  // reused

  Mutex mutex_;
  CondVar changed_;
  Job job_ ABSL_GUARDED_BY(mutex_);  // begun, not finished
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // of a job that is done
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DECODE_STAGE_H_
