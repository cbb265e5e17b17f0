#include "trainer_shim/cuda/device_stage.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"

namespace ballast {
namespace {

// In groups of up to so many ranks headers pass between all, so that every rank
// sees one that has gone astray; in larger ones between those that exchange.
constexpr uint32_t kMostHeaders = 32;

template <typename T>
T* At(const StreamBuffer& buffer, uint64_t offset) {
  return reinterpret_cast<T*>(buffer.data() + offset);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStage>> DeviceStage::Create(
    const JobShape& shape, PixelType pixel_type, Normalisation normalisation,
    DeviceCommunicator* communicator, Finding* finding) {
  const NormaliseTable table(shape.mean, shape.std, normalisation);
  BALLAST_ASSIGN_OR_RETURN(CudaPatchifier patchifier,
                           CudaPatchifier::Create(shape.patch, table));
  std::unique_ptr<DeviceStage> device(new DeviceStage(
      shape, pixel_type, communicator, finding, std::move(patchifier)));
  BALLAST_ASSIGN_OR_RETURN(device->stream_, Stream::Create());
  BALLAST_RETURN_IF_ERROR(LoadStagingKernels());
  return device;
}

absl::Status DeviceStage::Launch(int number, const Event& vacant,
                                  StagedBatch* window) {
  Slot& slot = slots_[number];
  // Both what is in the slot and its memory, should it have to grow, wait.
  BALLAST_RETURN_IF_ERROR(StreamWait(stream_.get(), vacant.get()));
  BALLAST_RETURN_IF_ERROR(Reserve(*window, &slot));
  Point(slot, window);
  if (window->block_bytes == nullptr) {
    BALLAST_RETURN_IF_ERROR(CopyIn(*window, slot));
    return window->packed.Record(stream_.get());
  }
  StagingTimer& timer = *window->timer;
  BALLAST_RETURN_IF_ERROR(timer.Begin(
      window->batch.step, window->batch.micro_batch, stream_.get()));
  BALLAST_RETURN_IF_ERROR(CopyIn(*window, slot));
  BALLAST_RETURN_IF_ERROR(timer.End(StagingTimer::kCopy, stream_.get()));
  if (shape_.exchanges()) {
    BALLAST_RETURN_IF_ERROR(CheckPeers(*window, slot));
    BALLAST_RETURN_IF_ERROR(Exchange(*window));
    BALLAST_RETURN_IF_ERROR(timer.End(StagingTimer::kExchange, stream_.get()));
  }
  BALLAST_RETURN_IF_ERROR(Pack(slot, window));
  BALLAST_RETURN_IF_ERROR(timer.End(StagingTimer::kPack, stream_.get()));
  return window->packed.Record(stream_.get());
}

absl::Status DeviceStage::Broadcast(int number, DeviceCommunicator* peers,
                                     StagedBatch* window, cudaStream_t stream) {
  const Slot& slot = slots_[number];
  const StagingPlan& plan = window->plan;
  if (plan.output.bytes == 0) return absl::OkStatus();
  uint8_t* placeholders = At<uint8_t>(slot.output, plan.output.placeholders);
  const bool sends = peers->rank() == 0;
  if (sends) {
    BALLAST_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(placeholders, window->placeholders.data(), plan.samples,
                        cudaMemcpyHostToDevice, stream),
        "copy of which samples are placeholders"));
  }
  BALLAST_RETURN_IF_ERROR(
      peers->Broadcast(0, slot.output.data(), plan.output.bytes, stream));
  if (!sends) {
    BALLAST_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(window->placeholders.data(), placeholders, plan.samples,
                        cudaMemcpyDeviceToHost, stream),
        "copy of which samples are placeholders"));
  }
  return window->packed.Record(stream);
}

absl::Status DeviceStage::Reserve(const StagedBatch& window, Slot* slot) {
  const StagingPlan& plan = window.plan;
  if (window.block_bytes != nullptr) {
    BALLAST_RETURN_IF_ERROR(
        landing_.Reserve(plan.landing.bytes, stream_.get()));
  }
  BALLAST_RETURN_IF_ERROR(
      slot->upload.Reserve(plan.upload.bytes, stream_.get()));
  return slot->output.Reserve(plan.output.bytes, stream_.get());
}

absl::Status DeviceStage::CopyIn(const StagedBatch& window, const Slot& slot) {
  const StagingPlan& plan = window.plan;
  const auto copy = [&](uint8_t* to, const uint8_t* from, uint64_t bytes) {
    return CudaStatus(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()),
        "copy of a block to the device");
  };
  BALLAST_RETURN_IF_ERROR(copy(slot.upload.data(),
                               window.host.data() + plan.landing.received,
                               plan.upload.bytes));
  if (window.block_bytes == nullptr) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(
      copy(landing_.data(), window.block_bytes, window.exchange.block.bytes()));
  if (!window.layout.dummy_image) return absl::OkStatus();
  return CudaStatus(
      cudaMemsetAsync(landing_.data() + plan.landing.grey, kDummyGrey,
                      plan.landing.bytes - plan.landing.grey, stream_.get()),
      "filling a dummy image");
}

absl::Status DeviceStage::CheckPeers(const StagedBatch& window,
                                      const Slot& slot) {
  peers_.clear();
  if (shape_.dp <= kMostHeaders) {
    for (uint32_t peer = 0; peer < shape_.dp; ++peer) {
      if (peer != communicator_->rank()) peers_.push_back(peer);
    }
  } else {
    for (const auto* slices :
         {&window.exchange.sends, &window.exchange.receives}) {
      for (const PeerSlice& slice : *slices) peers_.push_back(slice.peer);
    }
    std::sort(peers_.begin(), peers_.end());
    peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
  }
  constexpr uint64_t kBytes = sizeof(ExchangeHeader);
  BALLAST_RETURN_IF_ERROR(
      headers_.Reserve(peers_.size() * kBytes, stream_.get()));
  uint8_t* own = At<uint8_t>(slot.upload, window.plan.upload.header);
  sends_.clear();
  receives_.clear();
  for (size_t i = 0; i < peers_.size(); ++i) {
    sends_.push_back({peers_[i], own, kBytes});
    receives_.push_back({peers_[i], headers_.data() + i * kBytes, kBytes});
  }
  BALLAST_RETURN_IF_ERROR(
      communicator_->AllToAllV(sends_, receives_, stream_.get()));
  return LaunchCheckHeaders(At<ExchangeHeader>(headers_, 0), peers_.size(),
                            HeaderOf(window.exchange.block.header), finding_,
                            stream_.get());
}

absl::Status DeviceStage::Exchange(const StagedBatch& window) {
  uint8_t* received = landing_.data() + window.plan.landing.received;
  sends_.clear();
  for (const PeerSlice& slice : window.exchange.sends) {
    for (const ByteRange& range : {slice.records, slice.payload}) {
      sends_.push_back(
          {slice.peer, landing_.data() + range.offset, range.bytes});
    }
  }
  receives_.clear();
  for (const PeerSlice& slice : window.exchange.receives) {
    for (const ByteRange& range : {slice.records, slice.payload}) {
      receives_.push_back({slice.peer, received + range.offset, range.bytes});
    }
  }
  return communicator_->AllToAllV(sends_, receives_, stream_.get());
}

void DeviceStage::Point(const Slot& slot, StagedBatch* window) const {
  const OutputLayout& output = window->plan.output;
  const UploadLayout& upload = window->plan.upload;
  const BatchFields& fields = shape_.fields;
  DeviceBatch& batch = window->batch;
  batch.placeholders = window->placeholders.data();
  if (fields.input_ids) {
    batch.input_ids = At<int64_t>(slot.output, output.input_ids);
  }
  if (fields.labels) {
    batch.labels = At<int64_t>(slot.output, output.labels);
    batch.loss_mask = At<float>(slot.output, output.loss_mask);
  }
  if (fields.positions) {
    batch.position_ids = At<int64_t>(slot.output, output.position_ids);
    batch.cu_seqlens = At<int32_t>(slot.upload, upload.cu_seqlens);
    batch.cu_seqlens_padded =
        At<int32_t>(slot.upload, upload.cu_seqlens_padded);
  }
  if (fields.pixels) {
    batch.pixel_values = At<uint8_t>(slot.output, output.pixel_values);
    batch.image_grid_thw = At<int64_t>(slot.upload, upload.image_grid_thw);
    batch.vision_cu_seqlens =
        At<int32_t>(slot.upload, upload.vision_cu_seqlens);
  }
}

absl::Status DeviceStage::Pack(const Slot& slot, StagedBatch* window) {
  CheckRecordsArguments check;
  check.landing = landing_.data();
  check.records = At<RecordCheck>(slot.upload, window->plan.upload.records);
  check.count = window->plan.samples;
  check.placeholders = window->placeholders.data();
  check.finding = finding_;
  BALLAST_RETURN_IF_ERROR(LaunchCheckRecords(check, stream_.get()));
  return window->batch.role.module() == v1::MODULE_VISION
             ? PackImages(slot, *window)
             : PackText(slot, *window);
}

absl::Status DeviceStage::PackText(const Slot& slot,
                                    const StagedBatch& window) {
  const StagingPlan& plan = window.plan;
  const BatchFields& fields = shape_.fields;
  PackTextArguments pack;
  pack.landing = landing_.data();
  pack.texts = At<TextSource>(slot.upload, plan.upload.texts);
  pack.cu_seqlens_padded =
      At<int32_t>(slot.upload, plan.upload.cu_seqlens_padded);
  pack.samples = plan.samples;
  pack.context = shape_.context;
  pack.tokens = plan.tokens;
  pack.position_axes = shape_.block.position_axes;
  pack.pad_id = shape_.pad_id;
  if (fields.input_ids) {
    pack.input_ids = At<int64_t>(slot.output, plan.output.input_ids);
  }
  if (fields.labels) {
    pack.labels = At<int64_t>(slot.output, plan.output.labels);
    pack.loss_mask = At<float>(slot.output, plan.output.loss_mask);
  }
  if (fields.positions) {
    pack.position_ids = At<int64_t>(slot.output, plan.output.position_ids);
  }
  return LaunchPackText(pack, stream_.get());
}

absl::Status DeviceStage::PackImages(const Slot& slot,
                                      const StagedBatch& window) {
  const StagingPlan& plan = window.plan;
  const auto* first = reinterpret_cast<const PatchifyImage*>(
      window.host.data() + plan.landing.received + plan.upload.images);
  PatchifyBatch pack;
  pack.pixels = landing_.data();
  pack.pixel_bytes = plan.landing.bytes;
  pack.images = absl::MakeConstSpan(first, plan.images);
  pack.device_images = At<PatchifyImage>(slot.upload, plan.upload.images);
  pack.out = At<uint8_t>(slot.output, plan.output.pixel_values);
  pack.out_rows = plan.patches;
  pack.type = pixel_type_;
  return patchifier_.Launch(pack, stream_.get());
}

}  // namespace ballast
