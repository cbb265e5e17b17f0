#include "trainer_shim/host/batch_assembler.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/totals.h"

namespace ballast {
BatchAssembler::BatchAssembler(const v1::Role& role, const JobShape& shape,
                               PixelType pixel_type,
                               Normalisation normalisation,
                               Communicator* communicator)
    : role_(role),
      shape_(shape),
      table_(shape.mean, shape.std, normalisation),
      communicator_(communicator) {
  batch_.role = role;
  batch_.place = shape.place;
  batch_.fields = shape.fields;
  batch_.context = shape.context;
  batch_.pixel_type = pixel_type;
}

absl::StatusOr<ExchangePlan> BatchAssembler::Plan(
    const v1::StepSchedule& schedule, uint32_t micro_batch) {
  return PlanExchange(schedule, micro_batch, role_, shape_.delivery,
                      shape_.block);
}

absl::StatusOr<const PackedBatch*> BatchAssembler::Assemble(
    const v1::StepSchedule& schedule, uint32_t micro_batch,
    absl::Span<const uint8_t> block) {
  BALLAST_ASSIGN_OR_RETURN(const ExchangePlan plan,
                           Plan(schedule, micro_batch));
  BALLAST_ASSIGN_OR_RETURN(const BlockView view, BlockView::Parse(block));
  BALLAST_RETURN_IF_ERROR(view.Matches(plan.block));
  const absl::Time exchanging = Clock::Real()->Now();
  BALLAST_RETURN_IF_ERROR(Exchange(plan, block));
  batch_.exchange_time = shape_.exchanges() ? Clock::Real()->Now() - exchanging
                                            : absl::ZeroDuration();

  batch_.micro_batch = micro_batch;
  Identify(schedule, plan);
  batch_.bytes_read = plan.block.bytes();
  batch_.bytes_moved = plan.bytes_sent();
  BALLAST_RETURN_IF_ERROR(CheckRecords(plan, block));
  const v1::MicroBatchSchedule& columns = schedule.micro_batches(micro_batch);
  const absl::Time start = Clock::Real()->Now();
  BALLAST_ASSIGN_OR_RETURN(
      const BatchLayout layout,
      LayOutBatch(plan, *FindModule(columns, role_.module()), role_, shape_));
  if (role_.module() == v1::MODULE_VISION) {
    PackImages(plan, layout, block);
  } else {
    PackLanguage(plan, layout, block);
  }
  batch_.pack_time = Clock::Real()->Now() - start;
  return &batch_;
}

absl::StatusOr<PackedBatch*> BatchAssembler::Describe(
    const v1::StepSchedule& schedule, uint32_t micro_batch) {
  BALLAST_ASSIGN_OR_RETURN(const ExchangePlan plan,
                           Plan(schedule, micro_batch));
  const v1::MicroBatchSchedule& columns = schedule.micro_batches(micro_batch);
  batch_.micro_batch = micro_batch;
  Identify(schedule, plan);
  if (!shape_.fields.any()) return &batch_;
  BALLAST_ASSIGN_OR_RETURN(
      const BatchLayout layout,
      LayOutBatch(plan, *FindModule(columns, role_.module()), role_, shape_));
  if (role_.module() == v1::MODULE_VISION) {
    SizeVision(layout.vision, shape_.patch, &batch_);
    batch_.dummy_image = layout.dummy_image;
  } else {
    SizeText(layout.text, shape_.block.position_axes, &batch_);
  }
  return &batch_;
}

void BatchAssembler::Identify(const v1::StepSchedule& schedule,
                              const ExchangePlan& plan) {
  batch_.step = schedule.step();
  batch_.samples.clear();
  for (const OwnedSample& owned : plan.owned) {
    const SampleRecord& record = owned.expected;
    PackedSample& sample = batch_.samples.emplace_back();
    sample.position = record.position;
    sample.source = record.source;
    sample.ordinal = record.ordinal;
    sample.name =
        absl::StrCat(schedule.sources(record.source), ":", record.ordinal);
  }
  const v1::MicroBatchSchedule& columns =
      schedule.micro_batches(batch_.micro_batch);
  batch_.totals = SumTotals(columns, shape_.totals_align, role_);
  batch_.micro_batch_totals = SumTotals(columns, shape_.totals_align);
  if (summed_step_ == schedule.step()) return;
  summed_step_ = schedule.step();
  batch_.step_totals = {};
  for (const v1::MicroBatchSchedule& each : schedule.micro_batches()) {
    batch_.step_totals += SumTotals(each, shape_.totals_align);
  }
}

absl::Status BatchAssembler::Exchange(const ExchangePlan& plan,
                                      absl::Span<const uint8_t> block) {
  if (!shape_.exchanges()) return absl::OkStatus();
  if (received_.size() < plan.receive_bytes) {
    BALLAST_ASSIGN_OR_RETURN(received_,
                             AlignedBuffer::Create(plan.receive_bytes));
  }
  sends_.clear();
  for (const PeerSlice& slice : plan.sends) {
    for (const ByteRange& range : {slice.records, slice.payload}) {
      sends_.push_back({slice.peer, block.subspan(range.offset, range.bytes)});
    }
  }
  receives_.clear();
  for (const PeerSlice& slice : plan.receives) {
    for (const ByteRange& range : {slice.records, slice.payload}) {
      receives_.push_back(
          {slice.peer, received_.bytes().subspan(range.offset, range.bytes)});
    }
  }
  return communicator_->AllToAllV(sends_, receives_);
}

absl::Status BatchAssembler::CheckRecords(const ExchangePlan& plan,
                                          absl::Span<const uint8_t> block) {
  for (size_t i = 0; i < plan.owned.size(); ++i) {
    const OwnedSample& owned = plan.owned[i];
    SampleRecord record;
    std::memcpy(&record, BufferOf(owned, block) + owned.record, sizeof(record));
    batch_.samples[i].placeholder = (record.flags & kSampleIsPlaceholder) != 0;
    record.flags &= ~kSampleIsPlaceholder;
    if (std::memcmp(&record, &owned.expected, sizeof(record)) == 0) continue;
    return absl::DataLossError(absl::StrCat(
        "micro-batch ", batch_.micro_batch, " of step ", batch_.step,
        ": received position ", record.position, " with ", record.tokens,
        " tokens and ", record.payload_bytes, " bytes, wanted position ",
        owned.expected.position, " with ", owned.expected.tokens,
        " tokens and ", owned.expected.payload_bytes,
        " bytes; a peer follows another schedule"));
  }
  return absl::OkStatus();
}

void BatchAssembler::PackLanguage(const ExchangePlan& plan,
                                  const BatchLayout& layout,
                                  absl::Span<const uint8_t> block) {
  texts_.clear();
  for (const OwnedSample& owned : plan.owned) {
    texts_.push_back(
        {BufferOf(owned, block) + owned.payload, owned.expected.tokens});
  }
  PackText(texts_, layout.text, shape_.block.position_axes, shape_.pad_id,
           &batch_);
}

void BatchAssembler::PackImages(const ExchangePlan& plan,
                                const BatchLayout& layout,
                                absl::Span<const uint8_t> block) {
  images_.clear();
  for (const OwnedSample& owned : plan.owned) {
    for (uint32_t k = 0; k < owned.expected.num_images; ++k) {
      const ImageRecord& image = plan.images[owned.first_image + k];
      images_.push_back(
          {BufferOf(owned, block) + owned.payload + image.pixels, image});
    }
  }
  batch_.dummy_image = layout.dummy_image;
  if (layout.dummy_image) {
    const ImageRecord& dummy = layout.images.back();
    grey_.resize(size_t{3} * dummy.height * dummy.width, kDummyGrey);
    images_.push_back({grey_.data(), dummy});
  }
  PackVision(images_, layout.vision, shape_.patch, table_, &batch_);
}

}  // namespace ballast
