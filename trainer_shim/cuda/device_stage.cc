#include "trainer_shim/cuda/device_stage.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_handles.h"

namespace ballast {
namespace {

// Largest group in which all ranks exchange headers with all others, so that
// every rank detects a rank that follows another schedule. In larger groups
// only ranks that exchange samples compare headers.
constexpr uint32_t kMaxHeaders = 32;

template <typename T>
T* At(const StreamBuffer& buffer, uint64_t offset) {
  return reinterpret_cast<T*>(buffer.data() + offset);
}

// The address at which the kernels write a tensor; null if the batch has none
// of this name.
template <typename T>
T* GetOutput(const DeviceEntry& entry, absl::string_view tensor) {
  return const_cast<T*>(entry.batch.Get<T>(tensor));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStage>> DeviceStage::Create(
    const JobShape& shape, PixelType pixel_type, Normalisation normalisation,
    std::shared_ptr<const CudaStream> stream, Communicator* communicator,
    Finding* finding, size_t landings) {
  const NormaliseTable table(shape.mean, shape.std, normalisation);
  BALLAST_ASSIGN_OR_RETURN(CudaPatchifier patchifier,
                           CudaPatchifier::Create(shape.crops.rows, table));
  BALLAST_RETURN_IF_ERROR(LoadStagingKernels());
  return std::unique_ptr<DeviceStage>(
      new DeviceStage(shape, pixel_type, std::move(stream), communicator,
                      finding, std::move(patchifier), landings));
}

absl::Status DeviceStage::Launch(DeviceEntry* entry, StagedBatch* staged) {
  // Both overwriting the entry's memory and growing it must wait for its
  // readers.
  BALLAST_RETURN_IF_ERROR(entry->WaitUntilFree());
  BALLAST_RETURN_IF_ERROR(Reserve(staged, entry));
  std::swap(entry->batch, staged->batch);
  entry->layout = staged->plan.output;
  entry->header = GetHeader(staged->exchange.block.header);
  entry->header_in_upload = staged->plan.upload.header;
  Point(staged->plan, entry);
  cudaStream_t stream = stream_->get();
  if (staged->block_bytes == nullptr) {
    BALLAST_RETURN_IF_ERROR(CopyIn(*staged, *entry));
    BALLAST_RETURN_IF_ERROR(staged->read.Record(stream));
    return entry->packed.Record(stream);
  }
  StagingTimer& timer = *staged->timer;
  BALLAST_RETURN_IF_ERROR(
      timer.Begin(entry->batch.step, entry->batch.micro_batch, stream));
  BALLAST_RETURN_IF_ERROR(CopyIn(*staged, *entry));
  BALLAST_RETURN_IF_ERROR(timer.End(StagingTimer::kCopy, stream));
  if (shape_.exchanges()) {
    BALLAST_RETURN_IF_ERROR(CheckPeers(*staged, *entry));
    BALLAST_RETURN_IF_ERROR(Exchange(*staged));
    BALLAST_RETURN_IF_ERROR(timer.End(StagingTimer::kExchange, stream));
  }
  return staged->plan.encoded.empty() ? Finish(entry, staged)
                                      : CopyOut(*staged);
}

absl::Status DeviceStage::Finish(DeviceEntry* entry, StagedBatch* staged) {
  BALLAST_RETURN_IF_ERROR(Pack(*staged, *entry));
  BALLAST_RETURN_IF_ERROR(
      staged->timer->End(StagingTimer::kPack, stream_->get()));
  BALLAST_RETURN_IF_ERROR(staged->read.Record(stream_->get()));
  return entry->packed.Record(stream_->get());
}

absl::Status DeviceStage::CopyOut(const StagedBatch& staged) {
  if (staged.plan.receives_encoded) {
    BALLAST_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(staged.received.data(),
                        staged.landing + staged.plan.landing.received,
                        staged.exchange.receive_bytes, cudaMemcpyDeviceToHost,
                        stream_->get()),
        "copy of received files to the host"));
  }
  return staged.arrived.Record(stream_->get());
}

absl::Status DeviceStage::Broadcast(DeviceEntry* entry, Communicator* peers,
                                    cudaStream_t stream) {
  const OutputLayout& layout = entry->layout;
  if (layout.bytes == 0) return absl::OkStatus();
  const uint64_t samples = entry->batch.samples.size();
  uint8_t* placeholders = At<uint8_t>(entry->output, layout.placeholders);
  auto* header = At<ExchangeHeader>(entry->output, layout.header);
  const bool sends = peers->rank() == 0;
  if (sends) {
    BALLAST_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(placeholders, entry->placeholders.data(),
                                   samples, cudaMemcpyHostToDevice, stream),
                   "copy of which samples are placeholders"));
    BALLAST_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(header, entry->upload.data() + entry->header_in_upload,
                        sizeof(*header), cudaMemcpyDeviceToDevice, stream),
        "copy of a batch's header"));
  }
  const absl::Span<uint8_t> bytes(entry->output.data(), layout.bytes);
  BALLAST_RETURN_IF_ERROR(peers->Broadcast(0, {bytes}, stream));
  if (!sends) {
    // Batches of other steps may have the same sizes.
    BALLAST_RETURN_IF_ERROR(LaunchCheckHeaders(
        header, 1, entry->header, finding_, stream, Finding::kSent));
    BALLAST_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(entry->placeholders.data(), placeholders,
                                   samples, cudaMemcpyDeviceToHost, stream),
                   "copy of which samples are placeholders"));
  }
  return entry->packed.Record(stream);
}

absl::Status DeviceStage::Reserve(StagedBatch* staged, DeviceEntry* entry) {
  const StagingPlan& plan = staged->plan;
  cudaStream_t stream = stream_->get();
  staged->landing = nullptr;
  if (staged->block_bytes != nullptr) {
    StreamBuffer& landing = landings_[landed_++ % landings_.size()];
    BALLAST_RETURN_IF_ERROR(landing.Reserve(plan.landing.bytes, stream));
    staged->landing = landing.data();
  }
  BALLAST_RETURN_IF_ERROR(entry->ReservePlaceholders(plan.samples));
  BALLAST_RETURN_IF_ERROR(entry->upload.Reserve(plan.upload.bytes, stream));
  return entry->output.Reserve(plan.output.bytes, stream);
}

absl::Status DeviceStage::CopyIn(const StagedBatch& staged,
                                 const DeviceEntry& entry) {
  const StagingPlan& plan = staged.plan;
  const auto copy = [&](uint8_t* to, const uint8_t* from, uint64_t bytes) {
    return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice,
                                      stream_->get()),
                      "copy of a block to the device");
  };
  BALLAST_RETURN_IF_ERROR(copy(entry.upload.data(),
                               staged.host.data() + plan.landing.received,
                               plan.upload.bytes));
  if (staged.block_bytes == nullptr) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(
      copy(staged.landing, staged.block_bytes, staged.exchange.block.bytes()));
  if (plan.landing.bytes == plan.landing.grey) return absl::OkStatus();
  return CudaStatus(
      cudaMemsetAsync(staged.landing + plan.landing.grey, kGreyPixel,
                      plan.landing.bytes - plan.landing.grey, stream_->get()),
      "filling a dummy image");
}

absl::Status DeviceStage::CheckPeers(const StagedBatch& staged,
                                     const DeviceEntry& entry) {
  peers_.clear();
  if (shape_.dp <= kMaxHeaders) {
    for (uint32_t peer = 0; peer < shape_.dp; ++peer) {
      if (peer != communicator_->rank()) peers_.push_back(peer);
    }
  } else {
    for (const auto* slices :
         {&staged.exchange.sends, &staged.exchange.receives}) {
      for (const PeerSlice& slice : *slices) peers_.push_back(slice.peer);
    }
    std::sort(peers_.begin(), peers_.end());
    peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
  }
  constexpr uint64_t kBytes = sizeof(ExchangeHeader);
  BALLAST_RETURN_IF_ERROR(
      headers_.Reserve(peers_.size() * kBytes, stream_->get()));
  uint8_t* own = At<uint8_t>(entry.upload, staged.plan.upload.header);
  slices_.sends.clear();
  slices_.receives.clear();
  for (size_t i = 0; i < peers_.size(); ++i) {
    slices_.sends.push_back({peers_[i], {own, kBytes}});
    slices_.receives.push_back(
        {peers_[i], {headers_.data() + i * kBytes, kBytes}});
  }
  BALLAST_RETURN_IF_ERROR(communicator_->AllToAllV(
      slices_.sends, slices_.receives, stream_->get()));
  return LaunchCheckHeaders(At<ExchangeHeader>(headers_, 0), peers_.size(),
                            GetHeader(staged.exchange.block.header), finding_,
                            stream_->get());
}

absl::Status DeviceStage::Exchange(const StagedBatch& staged) {
  SliceExchange(staged.exchange, staged.landing,
                staged.landing + staged.plan.landing.received, &slices_);
  return communicator_->AllToAllV(slices_.sends, slices_.receives,
                                  stream_->get());
}

void DeviceStage::Point(const StagingPlan& plan, DeviceEntry* entry) const {
  entry->batch.memory.packed = entry->output.data();
  entry->batch.memory.lists = entry->upload.data() + plan.upload.lists;
  entry->batch.placeholders = entry->placeholders.data();
}

absl::Status DeviceStage::Pack(const StagedBatch& staged,
                               const DeviceEntry& entry) {
  CheckRecordsArguments check;
  check.landing = staged.landing;
  check.records = At<RecordCheck>(entry.upload, staged.plan.upload.records);
  check.count = staged.plan.samples;
  check.placeholders = entry.placeholders.data();
  check.finding = finding_;
  BALLAST_RETURN_IF_ERROR(LaunchCheckRecords(check, stream_->get()));
  const bool text = !staged.layout.text.cu_seqlens.empty();
  if (text) return PackText(staged, entry);
  if (staged.layout.clips.listed) return PackClips(staged, entry);
  BALLAST_RETURN_IF_ERROR(PackImages(staged, entry));
  return PackVideos(staged, entry);
}

absl::Status DeviceStage::PackText(const StagedBatch& staged,
                                   const DeviceEntry& entry) {
  const StagingPlan& plan = staged.plan;
  PackTextArguments pack;
  pack.landing = staged.landing;
  pack.texts = At<TextSource>(entry.upload, plan.upload.texts);
  pack.cu_seqlens_padded = At<int32_t>(entry.upload, plan.upload.places);
  pack.samples = plan.sequences;
  pack.position_axes = shape_.block.position_axes;
  pack.pad_id = shape_.pad_id;
  const auto point = [&](absl::string_view ids, absl::string_view positions,
                         PackTextArguments* to) {
    to->input_ids = GetOutput<int64_t>(entry, ids);
    if (shape_.block.float_positions) {
      to->float_positions = GetOutput<float>(entry, positions);
    } else {
      to->position_ids = GetOutput<int64_t>(entry, positions);
    }
  };
  if (entry.batch.whole_pack) {
    PackTextArguments whole = pack;
    whole.tokens = staged.layout.text.padded_tokens();
    point("pack_input_ids", "pack_position_ids", &whole);
    BALLAST_RETURN_IF_ERROR(LaunchPackText(whole, stream_->get()));
  }
  pack.context = staged.layout.context;
  pack.tokens = plan.tokens;
  point("input_ids", "position_ids", &pack);
  pack.labels = GetOutput<int64_t>(entry, "labels");
  pack.loss_mask = GetOutput<float>(entry, "loss_mask");
  pack.attention_mask = GetOutput<uint8_t>(entry, "attention_mask");
  pack.fields = shape_.field_table->counts;
  pack.weight_row = shape_.field_table->weight_row;
  for (const FieldTable::Field& field : shape_.field_table->fields) {
    (field.place.per_token ? pack.field_rows
                           : pack.field_values)[field.place.number] =
        GetOutput<uint32_t>(entry, field.tensor);
  }
  return LaunchPackText(pack, stream_->get());
}

absl::Status DeviceStage::PackImages(const StagedBatch& staged,
                                     const DeviceEntry& entry) {
  const StagingPlan& plan = staged.plan;
  PatchifyBatch pack = GetPatches(staged, entry, plan.upload.images,
                                  plan.images, "pixel_values");
  pack.out_rows = plan.rows;
  pack.tile_h = staged.layout.crops.shape.tile_h;
  pack.tile_w = staged.layout.crops.shape.tile_w;
  return patchifier_.Launch(pack, stream_->get());
}

absl::Status DeviceStage::PackVideos(const StagedBatch& staged,
                                     const DeviceEntry& entry) {
  const StagingPlan& plan = staged.plan;
  if (plan.frames == 0) return absl::OkStatus();
  PatchifyBatch pack = GetPatches(staged, entry, plan.upload.frames,
                                  plan.frames, "pixel_values_videos");
  pack.out_rows = plan.video_rows;
  pack.tile_h = staged.layout.crops.shape.tile_h;
  pack.tile_w = staged.layout.crops.shape.tile_w;
  return patchifier_.Launch(pack, stream_->get());
}

// One server's features are the same on every rank, so nothing is computed
// here.
absl::Status DeviceStage::PackClips(const StagedBatch& staged,
                                    const DeviceEntry& entry) {
  uint8_t* const out = GetOutput<uint8_t>(entry, staged.layout.clips.tensor);
  if (out == nullptr) return absl::OkStatus();
  const StagingPlan& plan = staged.plan;
  for (const FeatureRun& run : plan.features) {
    BALLAST_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(out + run.to, staged.landing + run.from, run.bytes,
                        cudaMemcpyDeviceToDevice, stream_->get()),
        "packing features of audio"));
  }
  if (plan.silence.bytes == 0) return absl::OkStatus();
  return CudaStatus(cudaMemsetAsync(out + plan.silence.offset, 0,
                                    plan.silence.bytes, stream_->get()),
                    "filling a dummy clip");
}

PatchifyBatch DeviceStage::GetPatches(const StagedBatch& staged,
                                      const DeviceEntry& entry, uint64_t upload,
                                      uint32_t count,
                                      absl::string_view tensor) const {
  const auto* first = reinterpret_cast<const PatchifyImage*>(
      staged.host.data() + staged.plan.landing.received + upload);
  PatchifyBatch pack;
  pack.pixels = staged.landing;
  pack.pixel_bytes = staged.plan.landing.bytes;
  pack.images = absl::MakeConstSpan(first, count);
  pack.device_images = At<PatchifyImage>(entry.upload, upload);
  pack.out = GetOutput<uint8_t>(entry, tensor);
  pack.type = pixel_type_;
  return pack;
}

}  // namespace ballast
