#include "trainer_shim/cuda/decode_stage.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/batch_fetcher.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "trainer_shim/cuda/cuda_status.h"
#include "trainer_shim/encoded_piece.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<DecodeStage>> DecodeStage::Create(
    int device, DeviceStage* stage,
    const DeviceImageDecoder::Options& options) {
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<DeviceImageDecoder> decoder,
                           DeviceImageDecoder::Create(options));
  std::unique_ptr<DecodeStage> decode(
      new DecodeStage(device, stage, std::move(decoder)));
  decode->thread_ = std::thread([raw = decode.get()] { raw->Run(); });
  return decode;
}

DecodeStage::~DecodeStage() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void DecodeStage::Begin(DeviceEntry* entry, StagedBatch* staged) {
  MutexLock lock(&mutex_);
  job_ = {entry, staged};
  done_ = false;
  changed_.NotifyAll();
}

absl::Status DecodeStage::Finish() {
  MutexLock lock(&mutex_);
  if (job_.staged == nullptr) return absl::OkStatus();
  while (!done_) changed_.Wait(&mutex_);
  job_ = {};
  return status_;
}

void DecodeStage::Run() {
  const absl::Status device =
      CudaStatus(cudaSetDevice(device_), "choosing the device");
  while (true) {
    Job job;
    {
      MutexLock lock(&mutex_);
      while ((job_.staged == nullptr || done_) && !ending_) {
        changed_.Wait(&mutex_);
      }
      if (job_.staged == nullptr || done_) return;
      job = job_;
    }
    const absl::Status status = device.ok() ? Work(job) : device;
    MutexLock lock(&mutex_);
    status_ = status;
    done_ = true;
    changed_.NotifyAll();
  }
}

absl::Status DecodeStage::Work(const Job& job) {
  StagedBatch& staged = *job.staged;
  const absl::Status decoded = Decode(staged);
  if (!decoded.ok()) {
    // An overwritten block may look damaged in any way.
    if (staged.block != nullptr) {
      BALLAST_RETURN_IF_ERROR(CheckIntact(*staged.block));
    }
    if (!absl::IsInvalidArgument(decoded)) return decoded;
    return absl::DataLossError(
        absl::StrCat("step ", job.entry->batch.step, " micro-batch ",
                     job.entry->batch.micro_batch,
                     ": an image that travelled encoded cannot be decoded: ",
                     decoded.message(), kCheckAdvice));
  }
  BALLAST_RETURN_IF_ERROR(
      staged.timer->End(StagingTimer::kDecode, stage_->stream()));
  return stage_->Finish(job.entry, &staged);
}

absl::Status DecodeStage::Decode(const StagedBatch& staged) {
  BALLAST_ASSIGN_OR_RETURN(DeviceImageDecoder::Ticket ticket,
                           Begin(staged, /*received=*/false));
  if (staged.plan.receives_encoded) {
    BALLAST_RETURN_IF_ERROR(staged.arrived.Wait());
    BALLAST_ASSIGN_OR_RETURN(ticket, Begin(staged, /*received=*/true));
  }
  return decoder_->Finish(ticket, stage_->stream());
}

absl::StatusOr<DeviceImageDecoder::Ticket> DecodeStage::Begin(
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
    // Not decoded either: what a peer sent by mistake. The check of records
    // reports it.
    if (std::memcmp(&record, &owned.expected, sizeof(record)) != 0) {
      BALLAST_RETURN_IF_ERROR(CudaStatus(
          cudaMemsetAsync(stage_->landing() + source.pixels, kGreyPixel,
                          PixelBytes(image), stage_->stream()),
          "filling a placeholder's image"));
      continue;
    }
    EncodedPiece piece;
    piece.image = source.image;
    piece.position = record.position;
    piece.file = {reinterpret_cast<const char*>(bytes + source.file),
                  image.encoded_bytes};
    BALLAST_ASSIGN_OR_RETURN(const PlaneForm form, FormOf(piece));
    images_.push_back(
        {piece.file, form, image.width, image.height, source.pixels});
  }
  // Earlier work on the stream may still read the landing buffer.
  return decoder_->Begin(images_, stage_->landing(), staged.arrived.get());
}

}  // namespace ballast
