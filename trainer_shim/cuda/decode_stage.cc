#include "trainer_shim/cuda/decode_stage.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/batch_fetcher.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

class DecodeStage::Steps final : public DecodeLine::Steps {
 public:
  Steps(int device, DeviceStage* stage,
        std::unique_ptr<DeviceImageDecoder> decoder, OnEnqueued on_enqueued)
      : device_(device),
        stage_(stage),
        decoder_(std::move(decoder)),
        on_enqueued_(std::move(on_enqueued)) {}

  void Set(size_t place, DeviceEntry* entry, StagedBatch* staged) {
    MutexLock lock(&mutex_);
    jobs_[place] = {entry, staged};
  }
  const DeviceImageDecoder& decoder() const { return *decoder_; }

  absl::Status Prepare() override {
    return CudaStatus(cudaSetDevice(device_), "choosing the device");
  }

  absl::Status Feed(size_t place) override {
    const absl::Status status =
        Explain(FeedFiles(*At(place).staged, &tickets_[place]));
    if (!status.ok()) Set(place, nullptr, nullptr);
    return status;
  }

  absl::Status Complete(size_t place) override {
    const absl::Status status = CompleteJob(At(place), tickets_[place]);
    Set(place, nullptr, nullptr);
    return status;
  }

 private:
  // A batch between its begin and the end of both steps.
  struct Job {
    DeviceEntry* entry = nullptr;
    StagedBatch* staged = nullptr;
  };
  Job At(size_t place) {
    MutexLock lock(&mutex_);
    return jobs_[place];
  }

  absl::Status CompleteJob(const Job& job, DeviceImageDecoder::Ticket ticket) {
    StagedBatch& staged = *job.staged;
    BALLAST_RETURN_IF_ERROR(
        Explain(decoder_->Finish(ticket, stage_->stream())));
    BALLAST_RETURN_IF_ERROR(
        staged.timer->End(StagingTimer::kDecode, stage_->stream()));
    BALLAST_RETURN_IF_ERROR(stage_->Finish(job.entry, &staged));
    on_enqueued_(*job.entry);
    return absl::OkStatus();
  }

  // The cause of an error in decoding, which may be in any batch in flight: a
  // chunk may hold images of two batches.
  absl::Status Explain(const absl::Status& decoded) {
    if (decoded.ok()) return decoded;
    // An overwritten block may look damaged in any way.
    for (size_t place = 0; place < kBatches; ++place) {
      const StagedBatch* const staged = At(place).staged;
      if (staged != nullptr && staged->block != nullptr) {
        BALLAST_RETURN_IF_ERROR(CheckIntact(*staged->block));
      }
    }
    if (!absl::IsInvalidArgument(decoded)) return decoded;
    return absl::DataLossError(
        absl::StrCat("an image that travelled encoded cannot be decoded: ",
                     decoded.message(), kCheckAdvice));
  }

  absl::Status FeedFiles(const StagedBatch& staged,
                         DeviceImageDecoder::Ticket* ticket) {
    BALLAST_ASSIGN_OR_RETURN(*ticket, Begin(staged, /*received=*/false));
    if (!staged.plan.receives_encoded) return absl::OkStatus();
    BALLAST_RETURN_IF_ERROR(staged.arrived.Wait());
    BALLAST_ASSIGN_OR_RETURN(*ticket, Begin(staged, /*received=*/true));
    return absl::OkStatus();
  }

  // Begins to decode the images that were received, or the others, and enqueues
  // the grey pixels of placeholders' images.
  absl::StatusOr<DeviceImageDecoder::Ticket> Begin(const StagedBatch& staged,
                                                   bool received);

  const int device_;
  DeviceStage* const stage_;
  const std::unique_ptr<DeviceImageDecoder> decoder_;
  const OnEnqueued on_enqueued_;
  Mutex mutex_;
  Job jobs_[kBatches] ABSL_GUARDED_BY(mutex_);
  DeviceImageDecoder::Ticket tickets_[kBatches] = {};  // fed, then completed
  std::vector<EncodedImage> images_;  // used by the thread that feeds; reused
};

DecodeStage::DecodeStage(std::unique_ptr<Steps> steps)
    : steps_(std::move(steps)),
      line_(std::make_unique<DecodeLine>(steps_.get())) {}

DecodeStage::~DecodeStage() = default;

absl::StatusOr<std::unique_ptr<DecodeStage>> DecodeStage::Create(
    int device, DeviceStage* stage, const DeviceImageDecoder::Options& options,
    OnEnqueued on_enqueued) {
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<DeviceImageDecoder> decoder,
                           DeviceImageDecoder::Create(options));
  return std::unique_ptr<DecodeStage>(new DecodeStage(std::make_unique<Steps>(
      device, stage, std::move(decoder), std::move(on_enqueued))));
}

void DecodeStage::Begin(DeviceEntry* entry, StagedBatch* staged) {
  steps_->Set(line_->next(), entry, staged);
  line_->Begin();
}

JpegEngineCounts DecodeStage::counts() const {
  return steps_->decoder().counts();
}

const absl::Status& DecodeStage::hardware() const {
  return steps_->decoder().hardware();
}

absl::StatusOr<DeviceImageDecoder::Ticket> DecodeStage::Steps::Begin(
    const StagedBatch& staged, bool received) {
  images_.clear();
  for (const EncodedSource& source : staged.plan.encoded) {
    const OwnedSample& owned = staged.exchange.owned[source.sample];
    if (owned.received != received) continue;
    const ImageRecord& image = staged.exchange.images[source.image];
    const uint8_t* bytes =
        owned.received ? staged.received.data() : staged.block_bytes;
    SampleRecord record;
    std::memcpy(&record, bytes + owned.record, sizeof(record));
    // An image that a peer sent by mistake is not decoded either. The check of
    // records reports it.
    if (std::memcmp(&record, &owned.expected, sizeof(record)) != 0) {
      BALLAST_RETURN_IF_ERROR(
          CudaStatus(cudaMemsetAsync(staged.landing + source.pixels, kGreyPixel,
                                     PixelBytes(image), stage_->stream()),
                     "filling a placeholder's image"));
      continue;
    }
    EncodedPiece piece;
    piece.image = source.image;
    piece.position = record.position;
    piece.file = {reinterpret_cast<const char*>(bytes + source.file),
                  image.encoded_bytes};
    BALLAST_ASSIGN_OR_RETURN(const PlaneForm form, GetForm(piece));
    images_.push_back({piece.file, form, image.width, image.height,
                       source.pixels, record.position});
  }
  // Earlier work on the stream may still read the landing buffer.
  return decoder_->Begin(images_, staged.landing, staged.arrived.get());
}

}  // namespace ballast
