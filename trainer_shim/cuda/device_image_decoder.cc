#include "trainer_shim/cuda/device_image_decoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/align.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"

namespace ballast {
namespace {

constexpr uint64_t kTableAlignment = 16;

// Where a plan's tables lie in one buffer.
struct TableLayout {
  explicit TableLayout(const ResamplePlan& plan)
      : taps(AlignUp(plan.images.size() * sizeof(ResampleImage),
                     kTableAlignment)),
        weights(taps +
                AlignUp(plan.taps.size() * sizeof(AxisTaps), kTableAlignment)),
        bytes(weights + plan.weights.size() * sizeof(int32_t)) {}
  uint64_t taps;
  uint64_t weights;
  uint64_t bytes;
};

template <typename T>
void CopyTable(const std::vector<T>& table, uint8_t* to) {
  std::memcpy(to, table.data(), table.size() * sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceImageDecoder>> DeviceImageDecoder::Create(
    const Options& options) {
  std::unique_ptr<DeviceImageDecoder> decoder(new DeviceImageDecoder(options));
  BALLAST_ASSIGN_OR_RETURN(decoder->stream_, CudaStream::CreateUrgent());
  BALLAST_ASSIGN_OR_RETURN(PlaneKernels kernels, PlaneKernels::Create());
  decoder->kernels_ = std::make_unique<PlaneKernels>(std::move(kernels));
  std::vector<std::unique_ptr<JpegEngine>> engines;
  for (size_t i = 0; i < options.engines; ++i) {
    BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<DeviceJpegEngine> engine,
                             DeviceJpegEngine::Create(options.hardware));
    decoder->hardware_ = engine->hardware();
    engines.push_back(std::move(engine));
  }
  decoder->chunks_ = std::make_unique<JpegChunks>(
      std::move(engines), [raw = decoder.get()](size_t slot) {
        return raw->LaunchKernels(&raw->slots_[slot]);
      });
  decoder->slots_ = std::vector<Slot>(decoder->chunks_->slots());
  for (Slot& slot : decoder->slots_) {
    BALLAST_ASSIGN_OR_RETURN(slot.done, Event::Create());
  }
  return decoder;
}

DeviceImageDecoder::~DeviceImageDecoder() {
  // Engines write to the slots' memory.
  chunks_.reset();
  if (stream_.get() != nullptr) stream_.Synchronize().IgnoreError();
}

absl::StatusOr<DeviceImageDecoder::Ticket> DeviceImageDecoder::Begin(
    absl::Span<const EncodedImage> images, uint8_t* out, cudaEvent_t free) {
  const uint64_t most = options_.memory / slots_.size();
  size_t begin = 0;
  while (begin < images.size()) {
    size_t end = begin;
    uint64_t memory = 0;
    while (end < images.size() && end - begin < options_.images) {
      memory += DecodeMemory({images[end].form, images[end].out_width,
                              images[end].out_height, 0, 0});
      if (end > begin && memory > most) break;
      ++end;
    }
    BALLAST_RETURN_IF_ERROR(
        BeginChunk(images.subspan(begin, end - begin), out, free));
    begin = end;
  }
  return chunks_->begun();
}

absl::Status DeviceImageDecoder::Finish(Ticket ticket, cudaStream_t stream) {
  BALLAST_RETURN_IF_ERROR(chunks_->Finish(ticket));
  // Chunks end in order on one stream. Where a later chunk has the slot by now,
  // its kernels are waited for too.
  if (ticket == 0) return absl::OkStatus();
  return StreamWait(stream, slots_[(ticket - 1) % slots_.size()].done.get());
}

absl::Status DeviceImageDecoder::BeginChunk(
    absl::Span<const EncodedImage> images, uint8_t* out, cudaEvent_t free) {
  BALLAST_ASSIGN_OR_RETURN(const size_t slot, chunks_->Reserve());
  const absl::Status status = Fill(images, out, free, &slots_[slot]);
  return status.ok() ? chunks_->Begin(jpegs_) : chunks_->Fail(status);
}

absl::Status DeviceImageDecoder::Fill(absl::Span<const EncodedImage> images,
                                      uint8_t* out, cudaEvent_t free,
                                      Slot* slot) {
  // Kernels may still read the planes of the slot's last chunk. The host waits:
  // engines write as soon as they are called, in no stream's order.
  BALLAST_RETURN_IF_ERROR(slot->done.Wait());
  slot->out = out;
  slot->free = free;
  slot->requests.clear();
  uint64_t planes = 0;
  for (const EncodedImage& image : images) {
    slot->requests.push_back(
        {image.form, image.out_width, image.out_height, planes, image.out});
    planes += LayOutPlanes(image.form).bytes;
  }
  if (planes > slot->planes.size()) {
    BALLAST_RETURN_IF_ERROR(slot->planes.Reserve(planes, stream_.get()));
    BALLAST_RETURN_IF_ERROR(slot->done.Record(stream_.get()));
    BALLAST_RETURN_IF_ERROR(slot->done.Wait());
  }
  jpegs_.clear();
  for (size_t i = 0; i < images.size(); ++i) {
    jpegs_.push_back({images[i].bytes, images[i].form,
                      slot->planes.data() + slot->requests[i].planes});
  }
  return absl::OkStatus();
}

absl::Status DeviceImageDecoder::LaunchKernels(Slot* slot) {
  BALLAST_RETURN_IF_ERROR(planner_.Plan(slot->requests));
  const ResamplePlan& plan = planner_.plan();
  const TableLayout layout(plan);
  BALLAST_RETURN_IF_ERROR(slot->host_tables.Reserve(layout.bytes));
  BALLAST_RETURN_IF_ERROR(slot->tables.Reserve(layout.bytes, stream_.get()));
  BALLAST_RETURN_IF_ERROR(
      slot->narrow.Reserve(plan.narrow_bytes, stream_.get()));
  uint8_t* tables = slot->host_tables.data();
  CopyTable(plan.images, tables);
  CopyTable(plan.taps, tables + layout.taps);
  CopyTable(plan.weights, tables + layout.weights);
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(slot->tables.data(), tables, layout.bytes,
                                 cudaMemcpyHostToDevice, stream_.get()),
                 "copy of resampling tables to the device"));
  if (slot->free != nullptr) {
    BALLAST_RETURN_IF_ERROR(StreamWait(stream_.get(), slot->free));
  }
  PlaneBatch batch;
  batch.plan = &plan;
  const uint8_t* device = slot->tables.data();
  batch.images = reinterpret_cast<const ResampleImage*>(device);
  batch.taps = reinterpret_cast<const AxisTaps*>(device + layout.taps);
  batch.weights = reinterpret_cast<const int32_t*>(device + layout.weights);
  batch.planes = slot->planes.data();
  batch.narrow = slot->narrow.data();
  batch.out = slot->out;
  BALLAST_RETURN_IF_ERROR(kernels_->Launch(batch, stream_.get()));
  return slot->done.Record(stream_.get());
}

}  // namespace ballast
