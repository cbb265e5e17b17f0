#ifndef BALLAST_TRAINER_SHIM_CUDA_CUDA_BATCH_MAKER_H_
#define BALLAST_TRAINER_SHIM_CUDA_CUDA_BATCH_MAKER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/cuda/batch_stager.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/device_batch.h"
#include "trainer_shim/cuda/device_image_decoder.h"
#include "trainer_shim/cuda/device_stage.h"
#include "trainer_shim/cuda/device_watch.h"
#include "trainer_shim/region_pins.h"

namespace ballast {

class DecodeStage;  // cuda_batch_maker.cc

// Makes DeviceBatches: a BatchStager pulls and plans ahead, a DeviceStage
// enqueues the device work, a DecodeStage decodes images that pass through
// encoded, and a DeviceWatch looks for errors on the device.
class CudaBatchMaker : public BatchMaker {
 public:
  // See CudaTrainerShim::Options.
  struct Options {
    int device = 0;
    PixelType pixel_type = PixelType::kBfloat16;
    Normalisation normalisation = Normalisation::kTorchvision;
    // Next also enqueues the device work of the following batch, which then
    // overlaps the trainer's step; of the following three if images pass
    // through encoded, so that the JPEG engines are not idle between batches.
    // Off: Next makes only the batch that it returns.
    bool overlap = true;
    // A batch whose device work is unfinished this long after it was enqueued
    // counts as hung: a peer is gone or far behind.
    absl::Duration timeout = absl::Minutes(10);
    // Options for decoding images that passed through encoded.
    DeviceImageDecoder::Options decoder;
  };

  explicit CudaBatchMaker(const Options& options);
  ~CudaBatchMaker() override;

  bool on_device() const override { return true; }
  absl::StatusOr<std::unique_ptr<BatchEntry>> MakeEntry() override;
  absl::Status Open(const Setup& setup) override;
  absl::Status CheckStream(StreamHandle stream) const override;
  absl::StatusOr<BatchEntry*> Next(StreamHandle stream) override;
  absl::Status Broadcast(BatchEntry* entry, StreamHandle stream) override;
  absl::Status Move(const BatchInfo& batch, const EmbeddingMoves& moves,
                    StreamHandle stream) override;
  absl::Status Found() const override;
  void Abort(const absl::Status& reason) override;
  void Cancel() override;
  JpegEngineCounts decoded() const override;
  void NoteTimes() override;

 private:
  // A batch whose device work is enqueued, except for the work after its
  // decoding.
  struct Launched {
    DeviceEntry* entry = nullptr;
    StagedBatch* staged = nullptr;  // to be given back; null: done
    bool decodes = false;           // has been given to decode_
  };

  // Enqueues the device work of the next batches until `count` are launched, or
  // fewer at the end of the steps, after which after_ is set.
  absl::Status LaunchUntil(size_t count);
  absl::Status Launch(StagedBatch* staged);
  // Waits for the JPEG engines if the oldest launched batch has encoded images,
  // until all its device work is enqueued. OK if none is launched.
  absl::Status FinishOldest();
  // Call once all batches are handed out, before the end of the steps is
  // reported: waits for the device, and returns what it has found in them.
  absl::Status CheckRest();
  // An event whose recorded work is done. Makes one if there is none: there are
  // as many as exchanges that the device has not finished.
  absl::StatusOr<const Event*> FreeMoved();

  const Options options_;
  Setup setup_;
  // Batches that are launched when Next returns.
  uint32_t ahead_ = 0;
  std::shared_ptr<const CudaStream> stream_;  // entries share it
  PinnedBuffer finding_;                      // one Finding
  CudaPinner pinner_;
  std::unique_ptr<RegionPins> regions_;
  std::unique_ptr<DeviceStage> stage_;
  std::vector<std::unique_ptr<Event>> moved_;  // ends of embedding exchanges
  // Declared after everything their threads use.
  std::unique_ptr<BatchStager> stager_;
  std::unique_ptr<DeviceWatch> watch_;
  std::unique_ptr<DecodeStage> decode_;  // null: no image passes through
                                         // encoded
  std::deque<Launched> launched_;        // not handed out; in order
  DeviceEntry* last_ = nullptr;          // handed out last
  // The error to return after these, once launching has failed.
  absl::Status after_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_CUDA_BATCH_MAKER_H_
