#include "trainer_shim/cuda/cuda_batch_maker.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_handles.h"

namespace ballast {
namespace {

constexpr uint32_t kMaxPrepared = 64;  // entries of the pool

}  // namespace

CudaBatchMaker::~CudaBatchMaker() {
  const CurrentDevice current(options_.device);
  decode_ = nullptr;  // its thread enqueues work
  // Device work must end before the memory that it uses is freed.
  if (stream_ != nullptr) stream_->Synchronize().IgnoreError();
  watch_ = nullptr;  // it uses the stager
  stager_ = nullptr;
  regions_ = nullptr;
  stage_ = nullptr;
}

absl::StatusOr<std::unique_ptr<BatchEntry>> CudaBatchMaker::MakeEntry() {
  return DeviceEntry::Create(options_.device, stream_);
}

absl::Status CudaBatchMaker::Open(const Setup& setup) {
  const CurrentDevice current(options_.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  setup_ = setup;
  BALLAST_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create());
  stream_ = std::make_shared<const CudaStream>(std::move(stream));
  const JobShape& shape = setup.source->shape();
  const bool decodes = shape.encoded_images && shape.fields.pixels;
  if (options_.overlap) ahead_ = decodes ? uint32_t{DecodeStage::kBatches} : 1;
  // Pinning memory may wait for the device, so not in Next.
  BALLAST_RETURN_IF_ERROR(setup.pool->Prepare(
      std::min(setup.pool->max_held() + ahead_, kMaxPrepared)));
  BALLAST_ASSIGN_OR_RETURN(finding_, PinnedBuffer::Create(sizeof(Finding)));
  auto* finding = new (finding_.data()) Finding;
  BALLAST_ASSIGN_OR_RETURN(
      stage_, DeviceStage::Create(
                  shape, options_.pixel_type, options_.normalisation, stream_,
                  setup.communicator, finding, std::max<size_t>(ahead_, 1)));
  if (decodes) {
    DeviceImageDecoder::Options decoder = options_.decoder;
    decoder.resampling = shape.resampling;
    BALLAST_ASSIGN_OR_RETURN(
        decode_, DecodeStage::Create(options_.device, stage_.get(), decoder,
                                     [this](const DeviceEntry& entry) {
                                       watch_->Given(&entry.packed);
                                     }));
    if (!decode_->hardware().ok()) {
      LogWarning("no JPEG engines, the CPU decodes: ",
                 decode_->hardware().message());
    }
  }
  regions_ = std::make_unique<RegionPins>(&pinner_, RegionPins::Options());
  BatchStager::Options stager;
  stager.device = options_.device;
  stager.pixel_type = options_.pixel_type;
  stager.max_bytes = setup.max_bytes;
  // Batches are kept until they are decoded.
  if (decodes) stager.batches += static_cast<int>(DecodeStage::kBatches);
  BALLAST_ASSIGN_OR_RETURN(
      stager_, BatchStager::Create(setup.source, regions_.get(), stager));
  DeviceWatch::Options watch;
  watch.device = options_.device;
  watch.timeout = options_.timeout;
  watch.on_look = [stager = stager_.get()] {
    stager->NoteTimes();
    stager->DropReadBlocks();
  };
  watch_ = std::make_unique<DeviceWatch>(
      std::vector<Communicator*>{setup.communicator, setup.tensor_communicator},
      finding, watch);
  return absl::OkStatus();
}

absl::StatusOr<BatchEntry*> CudaBatchMaker::Next(StreamHandle handle) {
  const CurrentDevice current(options_.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  const auto stream = static_cast<cudaStream_t>(handle);
  BALLAST_RETURN_IF_ERROR(LaunchUntil(std::max<size_t>(ahead_, 1)));
  BALLAST_RETURN_IF_ERROR(FinishOldest());
  if (launched_.empty()) {
    // The last blocks must have stayed intact until the device had read them.
    if (absl::IsOutOfRange(after_)) {
      BALLAST_RETURN_IF_ERROR(stager_->CheckRest());
    }
    return after_;
  }
  DeviceEntry* entry = launched_.front().entry;
  launched_.pop_front();
  BALLAST_RETURN_IF_ERROR(entry->RecordStream(stream));
  BALLAST_RETURN_IF_ERROR(StreamWait(stream, entry->packed.get()));
  BALLAST_RETURN_IF_ERROR(LaunchUntil(ahead_));
  return entry;
}

absl::Status CudaBatchMaker::LaunchUntil(size_t count) {
  while (launched_.size() < count && after_.ok()) {
    const absl::StatusOr<StagedBatch*> staged = stager_->Next();
    // The batches before are good: an error comes after them.
    after_ = staged.status();
    if (staged.ok()) BALLAST_RETURN_IF_ERROR(Launch(*staged));
  }
  return absl::OkStatus();
}

absl::Status CudaBatchMaker::Launch(StagedBatch* staged) {
  BALLAST_ASSIGN_OR_RETURN(BatchEntry * taken, setup_.pool->Take());
  auto* entry = static_cast<DeviceEntry*>(taken);
  const DeviceBatch& batch = staged->batch;
  watch_->Begin(
      absl::StrCat("step ", batch.step, " micro-batch ", batch.micro_batch),
      &entry->packed);
  BALLAST_RETURN_IF_ERROR(stage_->Launch(entry, staged));
  const bool decodes =
      staged->block_bytes != nullptr && !staged->plan.encoded.empty();
  if (decodes && decode_ == nullptr) {
    return absl::InvalidArgumentError(
        "the schedule lists encoded images, but model.decode of the job is "
        "not `device`");
  }
  if (decodes) {
    decode_->Begin(entry, staged);
  } else {
    watch_->Given(&entry->packed);
  }
  launched_.push_back({entry, staged, decodes});
  // Batches are given back in order.
  if (launched_.size() == 1 && !decodes) {
    stager_->Return(std::exchange(launched_.back().staged, nullptr));
  }
  return absl::OkStatus();
}

absl::Status CudaBatchMaker::FinishOldest() {
  if (launched_.empty()) return absl::OkStatus();
  Launched& oldest = launched_.front();
  if (oldest.decodes) BALLAST_RETURN_IF_ERROR(decode_->Finish());
  if (oldest.staged != nullptr) {
    stager_->Return(std::exchange(oldest.staged, nullptr));
  }
  return absl::OkStatus();
}

absl::Status CudaBatchMaker::Broadcast(BatchEntry* entry, StreamHandle stream) {
  const CurrentDevice current(options_.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  BALLAST_RETURN_IF_ERROR(entry->RecordStream(stream));
  return stage_->Broadcast(static_cast<DeviceEntry*>(entry),
                           setup_.tensor_communicator,
                           static_cast<cudaStream_t>(stream));
}

absl::StatusOr<const Event*> CudaBatchMaker::FreeMoved() {
  for (const std::unique_ptr<Event>& event : moved_) {
    BALLAST_ASSIGN_OR_RETURN(const bool done, event->Done());
    if (done) return event.get();
  }
  BALLAST_ASSIGN_OR_RETURN(Event event, Event::Create());
  moved_.push_back(std::make_unique<Event>(std::move(event)));
  return moved_.back().get();
}

absl::Status CudaBatchMaker::Move(const BatchInfo& batch,
                                  const EmbeddingMoves& moves,
                                  StreamHandle handle) {
  const CurrentDevice current(options_.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  const auto stream = static_cast<cudaStream_t>(handle);
  BALLAST_ASSIGN_OR_RETURN(const Event* done, FreeMoved());
  watch_->Begin(absl::StrCat("embeddings of step ", batch.step, " micro-batch ",
                             batch.micro_batch),
                done);
  for (const EmbeddingMoves::Copy& copy : moves.copies) {
    BALLAST_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(copy.to.data(), copy.from, copy.to.size(),
                                   cudaMemcpyDeviceToDevice, stream),
                   "copying embeddings"));
  }
  if (!moves.zero.empty()) {
    BALLAST_RETURN_IF_ERROR(CudaStatus(
        cudaMemsetAsync(moves.zero.data(), 0, moves.zero.size(), stream),
        "clearing a dummy's gradient"));
  }
  if (setup_.communicator != nullptr) {
    BALLAST_RETURN_IF_ERROR(
        setup_.communicator->AllToAllV(moves.sends, moves.receives, handle));
  }
  BALLAST_RETURN_IF_ERROR(done->Record(stream));
  watch_->Given(done);
  return absl::OkStatus();
}

absl::Status CudaBatchMaker::Found() const {
  return watch_ == nullptr ? absl::OkStatus() : watch_->status();
}

void CudaBatchMaker::Abort(const absl::Status& reason) {
  if (watch_ != nullptr) watch_->Abort(reason);
}

void CudaBatchMaker::Cancel() {
  if (stager_ != nullptr) stager_->Cancel();
}

void CudaBatchMaker::NoteTimes() {
  // Querying another device's events creates a context on the current device,
  // which may belong to another process. In that case only the watchdog looks.
  int current = 0;
  if (cudaGetDevice(&current) == cudaSuccess && current == options_.device) {
    stager_->NoteTimes();
  }
}

}  // namespace ballast
