#include "trainer_shim/cuda/staging_plan.h"

#include <cstring>
#include <vector>

#include "common/aligned_buffer.h"

namespace ballast {
namespace {

constexpr uint64_t kTensorAlignment = 256;

// Assigns offsets, one array after the other.
class Arrays {
 public:
  template <typename T>
  uint64_t Add(uint64_t count) {
    const uint64_t offset = AlignUp(bytes_, kTensorAlignment);
    bytes_ = offset + count * sizeof(T);
    return offset;
  }
  uint64_t bytes() const { return AlignUp(bytes_, kTensorAlignment); }

 private:
  uint64_t bytes_ = 0;
};

template <typename T>
void Put(absl::Span<uint8_t> out, uint64_t offset,
         const std::vector<T>& values) {
  if (values.empty()) return;
  std::memcpy(out.data() + offset, values.data(), values.size() * sizeof(T));
}

// A rank that receives no pixels lays out no images and no videos.
bool LaysOutImages(const BatchLayout& layout) {
  return !layout.images.empty() || !layout.videos.patches.empty();
}

// Lists the images that passed through encoded, and places their pixels.
// Returns the end of the pixels.
uint64_t PlanEncoded(const ExchangePlan& exchange, const BatchLayout& layout,
                     StagingPlan* plan) {
  uint64_t end = plan->landing.decoded;
  if (!LaysOutImages(layout)) return end;
  for (size_t i = 0; i < exchange.owned.size(); ++i) {
    const OwnedSample& owned = exchange.owned[i];
    for (uint32_t k = 0; k < owned.expected.num_images; ++k) {
      const uint32_t number = owned.first_image + k;
      const ImageRecord& image = exchange.images[number];
      if (image.encoded_bytes == 0) continue;
      plan->encoded.push_back(
          {static_cast<uint32_t>(i), number, owned.payload + image.data, end});
      plan->receives_encoded |= owned.received;
      end = AlignUp(end + PixelBytes(image), kTensorAlignment);
    }
  }
  return end;
}

// Lists where the features of clips land and where they go. A row of 128
// numbers fills two kSampleAlignment, so that all clips of one sender are one
// run.
void PlanFeatures(const ExchangePlan& exchange, const ClipLayout& clips,
                  StagingPlan* plan) {
  if (!clips.listed) return;
  const uint64_t row = uint64_t{clips.width} * sizeof(float);
  uint64_t to = 0;
  for (const OwnedSample& owned : exchange.owned) {
    const uint64_t payload = plan->landing.Of(owned, owned.payload);
    for (uint32_t k = 0; k < owned.expected.num_images; ++k) {
      const ImageRecord& clip = exchange.images[owned.first_image + k];
      const uint64_t from = payload + clip.data;
      if (plan->features.empty() ||
          plan->features.back().from + plan->features.back().bytes != from) {
        plan->features.push_back({from, to, 0});
      }
      plan->features.back().bytes += ImageBytes(clip);
      to += ImageBytes(clip);
    }
  }
  plan->silence = {to, row * clips.cu_rows.back() - to};
}

}  // namespace

ExchangeHeader GetHeader(const BlockHeader& block) {
  return {(block.fingerprint[0] & ~kHeaderRankMask) | block.dp_rank,
          (block.step << 24) | block.micro_batch};
}

StagingPlan PlanStaging(const ExchangePlan& exchange, const BatchLayout& layout,
                        const BatchInfo& info) {
  StagingPlan plan;
  plan.samples = exchange.owned.size();
  plan.sequences = info.sequences();
  plan.images = layout.images.size();
  if (!layout.text.cu_seqlens.empty()) {
    plan.tokens = layout.text.padded_tokens() / info.context.size;
  }
  plan.rows = layout.crops.rows();
  plan.frames = layout.videos.patches.size();
  plan.video_rows = layout.videos.rows();

  plan.landing.received = AlignUp(exchange.block.bytes(), kTensorAlignment);
  plan.landing.decoded =
      AlignUp(plan.landing.received + exchange.receive_bytes, kTensorAlignment);
  plan.landing.grey = PlanEncoded(exchange, layout, &plan);
  plan.landing.bytes = plan.landing.grey;
  if (layout.dummy_image && !layout.images.empty()) {
    plan.landing.bytes += PixelBytes(layout.images.back());
  }
  PlanFeatures(exchange, layout.clips, &plan);

  Arrays upload;
  plan.upload.header = upload.Add<ExchangeHeader>(1);
  plan.upload.records = upload.Add<RecordCheck>(plan.samples);
  plan.upload.texts = upload.Add<TextSource>(plan.sequences);
  plan.upload.places =
      upload.Add<int32_t>(layout.text.cu_seqlens_padded.size());
  plan.upload.images = upload.Add<PatchifyImage>(plan.images);
  plan.upload.frames = upload.Add<PatchifyImage>(plan.frames);
  plan.upload.lists = upload.Add<uint8_t>(info.list_bytes);
  plan.upload.bytes = upload.bytes();

  Arrays output;
  output.Add<uint8_t>(info.packed_bytes);
  plan.output.placeholders = output.Add<uint8_t>(plan.samples);
  if (output.bytes() > 0) plan.output.header = output.Add<ExchangeHeader>(1);
  plan.output.bytes = output.bytes();
  return plan;
}

namespace {

// The tables that patchify reads: still crops, and temporal patches of videos.
struct PatchifyTables {
  std::vector<PatchifyImage> images;
  std::vector<PatchifyImage> frames;
};

PatchifyTables GetTables(const StagingPlan& plan, const ExchangePlan& exchange,
                         const BatchLayout& layout) {
  PatchifyTables tables;
  if (!LaysOutImages(layout)) return tables;
  std::vector<uint64_t> pixels;  // offset of each of exchange.images
  for (const OwnedSample& owned : exchange.owned) {
    const uint64_t payload = plan.landing.Of(owned, owned.payload);
    for (uint32_t k = 0; k < owned.expected.num_images; ++k) {
      pixels.push_back(payload + exchange.images[owned.first_image + k].data);
    }
  }
  for (const EncodedSource& encoded : plan.encoded) {
    pixels[encoded.image] = encoded.pixels;
  }
  std::vector<uint64_t> frames;  // offset of each frame of a video
  for (size_t i = 0; i < pixels.size(); ++i) {
    const ImageRecord& image = exchange.images[i];
    if (IsFrame(image)) {
      frames.push_back(pixels[i]);
    } else {
      tables.images.push_back({pixels[i], 0, image.grid_h, image.grid_w,
                               image.height, image.width});
    }
  }
  if (layout.dummy_image) {
    const ImageRecord& dummy = layout.images.back();
    tables.images.push_back({plan.landing.grey, 0, dummy.grid_h, dummy.grid_w,
                             dummy.height, dummy.width});
  }
  for (size_t i = 0; i < tables.images.size(); ++i) {
    tables.images[i].first_row = layout.crops.row_offsets[i];
  }
  for (const TemporalPatch& patch : layout.videos.patches) {
    tables.frames.push_back(
        {frames[patch.first], static_cast<uint64_t>(patch.first_row),
         patch.sides.grid_h, patch.sides.grid_w, patch.sides.height,
         patch.sides.width, patch.frames.count,
         static_cast<uint32_t>(patch.frames.stride)});
  }
  return tables;
}

}  // namespace

void FillUpload(const StagingPlan& plan, const ExchangePlan& exchange,
                const BatchLayout& layout, const BatchInfo& info,
                absl::Span<uint8_t> out) {
  std::vector<RecordCheck> records;
  std::vector<TextSource> texts;
  for (const OwnedSample& owned : exchange.owned) {
    records.push_back({plan.landing.Of(owned, owned.record), owned.expected});
    // A rank that receives no text has no place for it either.
    if (plan.sequences == 0) continue;
    uint64_t payload = plan.landing.Of(owned, owned.payload);
    ForEachSequence(owned.expected.tokens, owned.expected.first_tokens,
                    [&](uint32_t tokens) {
                      texts.push_back({payload, tokens});
                      payload += LayOutLanguage(tokens, info.position_axes,
                                                info.field_table == nullptr
                                                    ? FieldCounts()
                                                    : info.field_table->counts)
                                     .bytes;
                    });
  }
  const PatchifyTables tables = GetTables(plan, exchange, layout);
  Put<ExchangeHeader>(out, plan.upload.header,
                      {GetHeader(exchange.block.header)});
  Put(out, plan.upload.records, records);
  Put(out, plan.upload.texts, texts);
  Put(out, plan.upload.places, layout.text.cu_seqlens_padded);
  Put(out, plan.upload.images, tables.images);
  Put(out, plan.upload.frames, tables.frames);
  for (const BatchTensor& tensor : info.tensors) {
    const Memory memory = tensor.row->memory;
    if (memory == Memory::kPacked || memory == Memory::kHost) continue;
    if (tensor.bytes() == 0) continue;
    std::memcpy(out.data() + plan.upload.lists + tensor.offset,
                tensor.row->value(info)->data, tensor.bytes());
  }
}

}  // namespace ballast
