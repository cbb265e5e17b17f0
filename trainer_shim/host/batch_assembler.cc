#include "trainer_shim/host/batch_assembler.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"

namespace ballast {

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

absl::StatusOr<BatchAssembler::Plan> BatchAssembler::PlanOf(
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
  BALLAST_ASSIGN_OR_RETURN(const Plan plan, PlanOf(step, micro_batch));
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
  if (role_.module() == v1::MODULE_VISION) {
    BALLAST_RETURN_IF_ERROR(PackImages(plan, block, batch));
  } else {
    PackLanguage(plan, block, batch);
  }
  batch->pack_time = Clock::Real()->Now() - packing - batch->decode_time;
  return absl::OkStatus();
}

absl::Status BatchAssembler::Describe(const StepInfo& step,
                                      uint32_t micro_batch,
                                      PackedBatch* batch) const {
  BALLAST_ASSIGN_OR_RETURN(const Plan plan, PlanOf(step, micro_batch));
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
    std::memcpy(&record, BufferOf(owned, block) + owned.record, sizeof(record));
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
    texts_.push_back(
        {BufferOf(owned, block) + owned.payload, owned.expected.tokens});
  }
  PackText(texts_, shape_.pad_id, batch);
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
      const uint8_t* data = BufferOf(owned, block) + owned.payload + image.data;
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

}  // namespace ballast
