#include "trainer_shim/host/host_batch_maker.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/batch_fetcher.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/role_source.h"

namespace ballast {

absl::Status BroadcastBatch(Communicator* peers, PackedBatch* batch) {
  // Batches of other steps may have the same sizes.
  const std::array<uint64_t, 2> place = {batch->step, batch->micro_batch};
  std::array<uint64_t, 2> sent = place;
  std::vector<uint8_t> placeholders;
  for (const PackedSample& sample : batch->samples) {
    placeholders.push_back(sample.placeholder);
  }
  // One region has all data that do not follow from the schedule.
  std::vector<absl::Span<uint8_t>> slices;
  for (const absl::Span<uint8_t> slice :
       {absl::MakeSpan(reinterpret_cast<uint8_t*>(sent.data()), sizeof(sent)),
        absl::MakeSpan(batch->packed).first(batch->packed_bytes),
        absl::MakeSpan(placeholders)}) {
    if (!slice.empty()) slices.push_back(slice);
  }
  BALLAST_RETURN_IF_ERROR(peers->Broadcast(0, slices, nullptr));
  if (sent != place) {
    return ForeignBatch({sent[0], sent[1]}, {place[0], place[1]});
  }
  for (size_t i = 0; i < placeholders.size(); ++i) {
    batch->samples[i].placeholder = placeholders[i] != 0;
  }
  return absl::OkStatus();
}

BatchAssembler::BatchAssembler(const v1::Role& role, const JobShape& shape,
                               PixelType pixel_type,
                               Normalisation normalisation,
                               Communicator* communicator)
    : role_(role),
      shape_(shape),
      pixel_type_(pixel_type),
      table_(shape.mean, shape.std, normalisation),
      communicator_(communicator),
      unpacker_(shape.resampling) {}

absl::StatusOr<BatchAssembler::Plan> BatchAssembler::GetPlan(
    const StepInfo& step, uint32_t micro_batch) const {
  Plan plan;
  BALLAST_ASSIGN_OR_RETURN(plan.exchange,
                           PlanExchange(*step.schedule, micro_batch, role_,
                                        shape_.delivery, shape_.block));
  if (!shape_.fields.any()) return plan;
  BALLAST_ASSIGN_OR_RETURN(
      plan.layout,
      LayOutBatch(plan.exchange, step.schedule->micro_batches(micro_batch),
                  role_, shape_));
  return plan;
}

absl::Status BatchAssembler::Assemble(const StepInfo& step,
                                      uint32_t micro_batch,
                                      absl::Span<const uint8_t> block,
                                      PackedBatch* batch) {
  BALLAST_ASSIGN_OR_RETURN(const Plan plan, GetPlan(step, micro_batch));
  BALLAST_ASSIGN_OR_RETURN(const BlockView view, BlockView::Parse(block));
  BALLAST_RETURN_IF_ERROR(view.Matches(plan.exchange.block));
  const absl::Time exchanging = Clock::Real()->Now();
  BALLAST_RETURN_IF_ERROR(Exchange(plan.exchange, block));
  const absl::Time packing = Clock::Real()->Now();
  batch->decode_time = absl::ZeroDuration();
  batch->exchange_time =
      shape_.exchanges() ? packing - exchanging : absl::ZeroDuration();
  FillBatchInfo(step, micro_batch, role_, shape_, pixel_type_, plan.exchange,
                plan.layout, /*has_block=*/true, batch);
  batch->Reserve();
  BALLAST_RETURN_IF_ERROR(CheckRecords(plan.exchange, block, batch));
  switch (GetMedia(role_.module())) {
    case Media::kImages:
      BALLAST_RETURN_IF_ERROR(PackImages(plan, block, batch));
      break;
    case Media::kRows:
      PackAudio(plan, block, batch);
      break;
    case Media::kText:
    case Media::kNone:
      PackLanguage(plan, block, batch);
      break;
  }
  batch->pack_time = Clock::Real()->Now() - packing - batch->decode_time;
  return absl::OkStatus();
}

absl::Status BatchAssembler::Describe(const StepInfo& step,
                                      uint32_t micro_batch,
                                      PackedBatch* batch) const {
  BALLAST_ASSIGN_OR_RETURN(const Plan plan, GetPlan(step, micro_batch));
  FillBatchInfo(step, micro_batch, role_, shape_, pixel_type_, plan.exchange,
                plan.layout, /*has_block=*/false, batch);
  batch->Reserve();
  return absl::OkStatus();
}

absl::Status BatchAssembler::Exchange(const ExchangePlan& plan,
                                      absl::Span<const uint8_t> block) {
  if (!shape_.exchanges()) return absl::OkStatus();
  if (received_.size() < plan.receive_bytes) {
    BALLAST_ASSIGN_OR_RETURN(received_,
                             AlignedBuffer::Create(plan.receive_bytes));
  }
  SliceExchange(plan, block.data(), received_.bytes().data(), &slices_);
  return communicator_->AllToAllV(slices_.sends, slices_.receives, nullptr);
}

absl::Status BatchAssembler::CheckRecords(const ExchangePlan& plan,
                                          absl::Span<const uint8_t> block,
                                          PackedBatch* batch) {
  for (size_t i = 0; i < plan.owned.size(); ++i) {
    const OwnedSample& owned = plan.owned[i];
    SampleRecord record;
    std::memcpy(&record, GetBuffer(owned, block) + owned.record,
                sizeof(record));
    batch->samples[i].placeholder = (record.flags & kSampleIsPlaceholder) != 0;
    record.flags &= ~kSampleIsPlaceholder;
    if (std::memcmp(&record, &owned.expected, sizeof(record)) == 0) continue;
    return absl::DataLossError(absl::StrCat(
        "micro-batch ", batch->micro_batch, " of step ", batch->step,
        ": received position ", record.position, " with ", record.tokens,
        " tokens and ", record.payload_bytes, " bytes, wanted position ",
        owned.expected.position, " with ", owned.expected.tokens,
        " tokens and ", owned.expected.payload_bytes,
        " bytes; a peer follows another schedule"));
  }
  return absl::OkStatus();
}

void BatchAssembler::PackLanguage(const Plan& plan,
                                  absl::Span<const uint8_t> block,
                                  PackedBatch* batch) {
  texts_.clear();
  for (const OwnedSample& owned : plan.exchange.owned) {
    const uint8_t* payload = GetBuffer(owned, block) + owned.payload;
    ForEachSequence(owned.expected.tokens, owned.expected.first_tokens,
                    [&](uint32_t tokens) {
                      texts_.push_back({payload, tokens});
                      payload +=
                          LayOutLanguage(tokens, shape_.block.position_axes,
                                         shape_.block.fields)
                              .bytes;
                    });
  }
  PackText(texts_, shape_.pad_id, batch);
}

void BatchAssembler::PackAudio(const Plan& plan,
                               absl::Span<const uint8_t> block,
                               PackedBatch* batch) {
  frames_.clear();
  for (const OwnedSample& owned : plan.exchange.owned) {
    for (uint32_t k = 0; k < owned.expected.num_images; ++k) {
      frames_.push_back(GetBuffer(owned, block) + owned.payload +
                        plan.exchange.images[owned.first_image + k].data);
    }
  }
  PackClips(frames_, batch);
}

absl::Status BatchAssembler::PackImages(const Plan& plan,
                                        absl::Span<const uint8_t> block,
                                        PackedBatch* batch) {
  images_.clear();
  frames_.clear();
  encoded_.clear();
  for (size_t i = 0; i < plan.exchange.owned.size(); ++i) {
    const OwnedSample& owned = plan.exchange.owned[i];
    for (uint32_t k = 0; k < owned.expected.num_images; ++k) {
      const ImageRecord& image = plan.exchange.images[owned.first_image + k];
      const uint8_t* data =
          GetBuffer(owned, block) + owned.payload + image.data;
      if (IsFrame(image)) {
        frames_.push_back(data);
        continue;
      }
      if (image.encoded_bytes != 0 && shape_.fields.pixels) {
        encoded_.push_back(
            {static_cast<uint32_t>(images_.size()),
             owned.expected.position,
             {reinterpret_cast<const char*>(data), image.encoded_bytes},
             batch->samples[i].placeholder});
      }
      images_.push_back({data, image});
    }
  }
  if (!encoded_.empty()) {
    const absl::Time decoding = Clock::Real()->Now();
    BALLAST_RETURN_IF_ERROR(
        unpacker_.Unpack(encoded_, absl::MakeSpan(images_)));
    batch->decode_time = Clock::Real()->Now() - decoding;
  }
  if (plan.layout.dummy_image) {
    const ImageRecord& dummy = plan.layout.images.back();
    grey_.resize(PixelBytes(dummy), kGreyPixel);
    images_.push_back({grey_.data(), dummy});
  }
  PackVision(images_, table_, batch);
  PackVideos(frames_, table_, batch);
  return absl::OkStatus();
}

namespace {

struct HostEntry : public BatchEntry {
  const BatchInfo& info() const override { return batch; }
  bool placeholder(size_t index) const override {
    return batch.samples[index].placeholder;
  }
  absl::Duration pack_time() const override { return batch.pack_time; }
  absl::StatusOr<std::string> Digest(StreamHandle) const override {
    return ComputeDigest(batch);
  }
  absl::Status RecordStream(StreamHandle) override { return absl::OkStatus(); }
  void List(std::vector<TensorView>* tensors) const override {
    ListTensors(batch, {kHostMemory, batch.packed.data()}, tensors);
  }
  void OnRelease() override {}

  PackedBatch batch;
};

PackedBatch* GetBatch(BatchEntry* entry) {
  return &static_cast<HostEntry*>(entry)->batch;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchEntry>> HostBatchMaker::MakeEntry() {
  return std::make_unique<HostEntry>();
}

absl::Status HostBatchMaker::Open(const Setup& setup) {
  setup_ = setup;
  assembler_.emplace(setup.source->role(), setup.source->shape(), pixel_type_,
                     normalisation_, setup.communicator);
  return absl::OkStatus();
}

absl::StatusOr<BatchEntry*> HostBatchMaker::Next(StreamHandle) {
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(RoleSource::Block next, setup_.source->Next());
    BALLAST_ASSIGN_OR_RETURN(BatchEntry * entry, setup_.pool->Take());
    const absl::Status status =
        next.block == nullptr
            ? assembler_->Describe(*next.step, next.micro_batch,
                                   GetBatch(entry))
            : Assemble(next, GetBatch(entry));
    if (status.ok()) return entry;
    setup_.pool->PutBack(entry);
    // A block that was overwritten while it was read is pulled again, unless
    // peers have been sent parts of it.
    if (absl::IsCancelled(status) || next.block == nullptr ||
        next.block->intact() || setup_.source->shape().exchanges()) {
      return status;
    }
    BALLAST_RETURN_IF_ERROR(setup_.source->FetchAgain(std::move(next.block)));
  }
}

absl::Status HostBatchMaker::Assemble(const RoleSource::Block& next,
                                      PackedBatch* batch) {
  const bool sends =
      setup_.source->shape().exchanges() && next.block->may_be_overwritten();
  absl::Span<const uint8_t> block = next.block->bytes();
  if (sends) {
    BALLAST_ASSIGN_OR_RETURN(block, CheckedCopy(*next.block));
  }
  const absl::Status assembled =
      assembler_->Assemble(*next.step, next.micro_batch, block, batch);
  // First, since an overwritten block may look damaged in any way.
  if (!sends && !absl::IsCancelled(assembled)) {
    BALLAST_RETURN_IF_ERROR(CheckIntact(*next.block));
  }
  BALLAST_RETURN_IF_ERROR(assembled);
  BatchTimes times;
  times.step = batch->step;
  times.micro_batch = batch->micro_batch;
  if (setup_.source->shape().exchanges()) times.exchange = batch->exchange_time;
  if (batch->decode_time > absl::ZeroDuration()) {
    times.decode = batch->decode_time;
  }
  times.pack = batch->pack_time;
  setup_.source->NoteTimes(times);
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const uint8_t>> HostBatchMaker::CheckedCopy(
    const FetchedBlock& block) {
  if (copy_.size() < block.bytes().size()) {
    BALLAST_ASSIGN_OR_RETURN(copy_,
                             AlignedBuffer::Create(block.bytes().size()));
  }
  std::copy(block.bytes().begin(), block.bytes().end(), copy_.bytes().begin());
  BALLAST_RETURN_IF_ERROR(CheckIntact(block));
  return copy_.bytes().first(block.bytes().size());
}

absl::Status HostBatchMaker::Broadcast(BatchEntry* entry, StreamHandle) {
  return BroadcastBatch(setup_.tensor_communicator, GetBatch(entry));
}

absl::Status HostBatchMaker::Move(const BatchInfo&, const EmbeddingMoves& moves,
                                  StreamHandle) {
  for (const EmbeddingMoves::Copy& copy : moves.copies) {
    std::copy_n(copy.from, copy.to.size(), copy.to.begin());
  }
  std::fill(moves.zero.begin(), moves.zero.end(), 0);
  if (setup_.communicator == nullptr) return absl::OkStatus();
  return setup_.communicator->AllToAllV(moves.sends, moves.receives, nullptr);
}

}  // namespace ballast
