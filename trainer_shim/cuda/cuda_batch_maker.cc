#include "trainer_shim/cuda/cuda_batch_maker.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/batch_fetcher.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "trainer_shim/cuda/cuda_handles.h"
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
  std::unique_ptr<DecodeLine> line_;  // destroyed first: joins
};

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

  absl::Status Prepare() override { return UseDevice(device_); }

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
    : steps_(std::move(steps)) {}

DecodeStage::~DecodeStage() = default;

absl::StatusOr<std::unique_ptr<DecodeStage>> DecodeStage::Create(
    int device, DeviceStage* stage, const DeviceImageDecoder::Options& options,
    OnEnqueued on_enqueued) {
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<DeviceImageDecoder> decoder,
                           DeviceImageDecoder::Create(options));
  std::unique_ptr<DecodeStage> decodes(new DecodeStage(std::make_unique<Steps>(
      device, stage, std::move(decoder), std::move(on_enqueued))));
  BALLAST_ASSIGN_OR_RETURN(decodes->line_,
                           DecodeLine::Create(decodes->steps_.get()));
  return decodes;
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

namespace {

constexpr uint32_t kMaxPrepared = 64;  // entries of the pool

std::string GetName(const BatchInfo& batch) {
  return absl::StrCat("step ", batch.step, " micro-batch ", batch.micro_batch);
}

}  // namespace

CudaBatchMaker::CudaBatchMaker(const Options& options)
    : options_(options), pinner_(options.device) {}

CudaBatchMaker::~CudaBatchMaker() {
  const CurrentDevice current(options_.device);
  decode_ = nullptr;  // its thread enqueues work
  // Device work must end before the memory that it uses is freed.
  if (stream_ != nullptr) stream_->Synchronize().IgnoreError();
  watch_ = nullptr;  // it uses the stager
  stager_ = nullptr;
  regions_ = nullptr;
  stage_ = nullptr;
  moved_.clear();
  finding_ = {};
  stream_ = nullptr;
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
  BALLAST_ASSIGN_OR_RETURN(regions_,
                           RegionPins::Create(&pinner_, RegionPins::Options()));
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
  BALLAST_ASSIGN_OR_RETURN(
      watch_,
      DeviceWatch::Create({setup.communicator, setup.tensor_communicator},
                          finding, watch));
  return absl::OkStatus();
}

absl::Status CudaBatchMaker::CheckStream(StreamHandle stream) const {
  const CurrentDevice current(options_.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  return CheckNotCapturing(static_cast<cudaStream_t>(stream));
}

absl::StatusOr<BatchEntry*> CudaBatchMaker::Next(StreamHandle handle) {
  const CurrentDevice current(options_.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  const auto stream = static_cast<cudaStream_t>(handle);
  BALLAST_RETURN_IF_ERROR(LaunchUntil(std::max<size_t>(ahead_, 1)));
  BALLAST_RETURN_IF_ERROR(FinishOldest());
  if (launched_.empty()) {
    if (absl::IsOutOfRange(after_)) BALLAST_RETURN_IF_ERROR(CheckRest());
    return after_;
  }
  DeviceEntry* entry = launched_.front().entry;
  launched_.pop_front();
  last_ = entry;
  BALLAST_RETURN_IF_ERROR(StreamWait(stream, entry->packed.get()));
  BALLAST_RETURN_IF_ERROR(LaunchUntil(ahead_));
  // Last: nothing releases the entry of a call that fails, and the stream need
  // not outlive that call.
  BALLAST_RETURN_IF_ERROR(entry->RecordStream(stream));
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
  watch_->Begin(GetName(staged->batch), &entry->packed);
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

absl::Status CudaBatchMaker::CheckRest() {
  // The last blocks must have stayed intact until the device had read them.
  BALLAST_RETURN_IF_ERROR(stager_->CheckRest());
  // The last batch may have come from a tensor peer.
  if (last_ != nullptr) BALLAST_RETURN_IF_ERROR(last_->packed.Wait());
  return watch_->Look();
}

absl::Status CudaBatchMaker::Broadcast(BatchEntry* taken, StreamHandle stream) {
  const CurrentDevice current(options_.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  auto* entry = static_cast<DeviceEntry*>(taken);
  BALLAST_RETURN_IF_ERROR(entry->RecordStream(stream));
  watch_->Begin(absl::StrCat(GetName(entry->batch), " among tensor peers"),
                &entry->packed);
  BALLAST_RETURN_IF_ERROR(stage_->Broadcast(entry, setup_.tensor_communicator,
                                            static_cast<cudaStream_t>(stream)));
  watch_->Given(&entry->packed);
  return absl::OkStatus();
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
  watch_->Begin(absl::StrCat("embeddings of ", GetName(batch)), done);
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

JpegEngineCounts CudaBatchMaker::decoded() const {
  return decode_ ? decode_->counts() : JpegEngineCounts();
}

void CudaBatchMaker::NoteTimes() {
  // Querying another device's events creates a context on the current device,
  // which may belong to another process. In that case only the watchdog looks.
  int current = 0;
  if (cudaGetDevice(&current) != cudaSuccess || current != options_.device) {
    return;
  }
  const CurrentDevice relaxed(current);
  stager_->NoteTimes();
}

}  // namespace ballast
