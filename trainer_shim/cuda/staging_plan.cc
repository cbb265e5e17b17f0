#include "trainer_shim/cuda/staging_plan.h"

#include <cstring>
#include <vector>

#include "common/align.h"

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

// Lists the images that travelled encoded, and places their pixels. Returns the
// end of the pixels.
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

}  // namespace

ExchangeHeader HeaderOf(const BlockHeader& block) {
  return {(block.fingerprint[0] & ~kHeaderRankMask) | block.dp_rank,
          (block.step << 24) | block.micro_batch};
}

StagingPlan PlanStaging(const ExchangePlan& exchange, const BatchLayout& layout,
                        const JobShape& shape, PixelType pixel_type) {
  StagingPlan plan;
  plan.samples = exchange.owned.size();
  plan.images = layout.images.size();
  if (!layout.text.cu_seqlens.empty()) {
    plan.tokens = layout.text.padded_tokens() / shape.context.size;
  }
  plan.rows = layout.crops.rows();
  plan.frames = layout.videos.patches.size();
  plan.video_rows = layout.videos.rows();

  plan.landing.received = AlignUp(exchange.block.bytes(), kTensorAlignment);
  plan.landing.decoded =
      AlignUp(plan.landing.received + exchange.receive_bytes, kTensorAlignment);
  plan.landing.grey = PlanEncoded(exchange, layout, &plan);
  plan.landing.bytes = plan.landing.grey;
  if (layout.dummy_image) {
    const ImageRecord& dummy = layout.images.back();
    plan.landing.bytes += PixelBytes(dummy);
  }

  Arrays upload;
  plan.upload.header = upload.Add<ExchangeHeader>(1);
  plan.upload.records = upload.Add<RecordCheck>(plan.samples);
  plan.upload.texts = upload.Add<TextSource>(plan.samples);
  plan.upload.images = upload.Add<PatchifyImage>(plan.images);
  plan.upload.frames = upload.Add<PatchifyImage>(plan.frames);
  plan.upload.cu_seqlens = upload.Add<int32_t>(layout.text.cu_seqlens.size());
  plan.upload.cu_seqlens_padded =
      upload.Add<int32_t>(layout.text.cu_seqlens_padded.size());
  plan.upload.image_grid_thw =
      upload.Add<int64_t>(layout.vision.image_grid_thw.size());
  plan.upload.vision_cu_seqlens =
      upload.Add<int32_t>(layout.vision.cu_seqlens.size());
  const VideoLayout& videos = layout.videos;
  plan.upload.video_grid_thw =
      upload.Add<int64_t>(videos.vision.image_grid_thw.size());
  plan.upload.second_per_grid_ts =
      upload.Add<float>(videos.second_per_grid_ts.size());
  plan.upload.video_cu_seqlens =
      upload.Add<int32_t>(videos.vision.cu_seqlens.size());
  const CropLayout& crops = layout.crops;
  plan.upload.imgs_sizes = upload.Add<int64_t>(crops.imgs_sizes.size());
  plan.upload.crops_per_image =
      upload.Add<int64_t>(crops.crops_per_image.size());
  plan.upload.image_sizes = upload.Add<int64_t>(crops.image_sizes.size());
  plan.upload.spatial_shapes = upload.Add<int64_t>(crops.spatial_shapes.size());
  plan.upload.pixel_attention_mask =
      upload.Add<uint8_t>(crops.pixel_attention_mask.size());
  plan.upload.embedding_order =
      upload.Add<int64_t>(layout.embeddings.order.size());
  plan.upload.bytes = upload.bytes();

  Arrays output;
  const BatchFields& fields = shape.fields;
  const uint64_t labels = fields.labels ? plan.tokens : 0;
  plan.output.input_ids =
      output.Add<int64_t>(fields.input_ids ? plan.tokens : 0);
  plan.output.labels = output.Add<int64_t>(labels);
  plan.output.loss_mask = output.Add<float>(labels);
  plan.output.position_ids = output.Add<int64_t>(
      fields.positions ? plan.tokens * shape.block.position_axes : 0);
  plan.output.attention_mask = output.Add<uint8_t>(
      fields.positions && shape.padding.rows ? plan.tokens : 0);
  const auto add_pixels = [&](uint64_t rows) {
    const uint64_t values = fields.pixels ? rows * crops.shape.row() : 0;
    return pixel_type == PixelType::kBfloat16 ? output.Add<uint16_t>(values)
                                              : output.Add<float>(values);
  };
  plan.output.pixel_values = add_pixels(plan.rows);
  plan.output.pixel_values_videos = add_pixels(plan.video_rows);
  plan.output.placeholders = output.Add<uint8_t>(plan.samples);
  plan.output.bytes = output.bytes();
  return plan;
}

namespace {

// What patchify reads: still crops, and temporal patches of videos.
struct PatchifyTables {
  std::vector<PatchifyImage> images;
  std::vector<PatchifyImage> frames;
};

PatchifyTables TablesOf(const StagingPlan& plan, const ExchangePlan& exchange,
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
                const BatchLayout& layout, absl::Span<uint8_t> out) {
  std::vector<RecordCheck> records;
  std::vector<TextSource> texts;
  for (const OwnedSample& owned : exchange.owned) {
    const uint64_t payload = plan.landing.Of(owned, owned.payload);
    records.push_back({plan.landing.Of(owned, owned.record), owned.expected});
    texts.push_back({payload, owned.expected.tokens});
  }
  const PatchifyTables tables = TablesOf(plan, exchange, layout);
  Put<ExchangeHeader>(out, plan.upload.header,
                      {HeaderOf(exchange.block.header)});
  Put(out, plan.upload.records, records);
  Put(out, plan.upload.texts, texts);
  Put(out, plan.upload.images, tables.images);
  Put(out, plan.upload.frames, tables.frames);
  Put(out, plan.upload.cu_seqlens, layout.text.cu_seqlens);
  Put(out, plan.upload.cu_seqlens_padded, layout.text.cu_seqlens_padded);
  Put(out, plan.upload.image_grid_thw, layout.vision.image_grid_thw);
  Put(out, plan.upload.vision_cu_seqlens, layout.vision.cu_seqlens);
  Put(out, plan.upload.video_grid_thw, layout.videos.vision.image_grid_thw);
  Put(out, plan.upload.second_per_grid_ts, layout.videos.second_per_grid_ts);
  Put(out, plan.upload.video_cu_seqlens, layout.videos.vision.cu_seqlens);
  Put(out, plan.upload.imgs_sizes, layout.crops.imgs_sizes);
  Put(out, plan.upload.crops_per_image, layout.crops.crops_per_image);
  Put(out, plan.upload.image_sizes, layout.crops.image_sizes);
  Put(out, plan.upload.spatial_shapes, layout.crops.spatial_shapes);
  Put(out, plan.upload.pixel_attention_mask, layout.crops.pixel_attention_mask);
  Put(out, plan.upload.embedding_order, layout.embeddings.order);
}

}  // namespace ballast
