#include "trainer_shim/pack_cpu.h"

#include <algorithm>

namespace ballast {
namespace {

constexpr int64_t kUnsupervised = -100;

// Payload arrays begin at multiples of 16 within a block that begins at one.
const int32_t* Int32s(const uint8_t* payload, uint64_t offset) {
  return reinterpret_cast<const int32_t*>(payload + offset);
}

}  // namespace

void PackText(absl::Span<const TextPiece> pieces, const TextLayout& layout,
              uint32_t position_axes, int32_t pad_id, PackedBatch* batch) {
  const uint64_t total = layout.padded_tokens();
  batch->input_ids.resize(total);
  batch->labels.resize(total);
  batch->loss_mask.resize(total);
  batch->position_ids.resize(position_axes * total);
  batch->position_axes = position_axes;
  batch->cu_seqlens = layout.cu_seqlens;
  batch->cu_seqlens_padded = layout.cu_seqlens_padded;
  batch->max_seqlen = layout.max_seqlen;

  int64_t* out_ids = batch->input_ids.data();
  int64_t* out_labels = batch->labels.data();
  float* out_mask = batch->loss_mask.data();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint64_t tokens = pieces[i].tokens;
    const LanguagePayload at = LayOutLanguage(tokens, position_axes);
    const int32_t* ids = Int32s(pieces[i].payload, at.ids);
    const int32_t* labels = Int32s(pieces[i].payload, at.labels);
    const int32_t* positions = Int32s(pieces[i].payload, at.positions);
    // The sample lies in [begin, pad), its alignment padding in [pad, end).
    const uint64_t begin = layout.cu_seqlens_padded[i];
    const uint64_t pad = begin + tokens;
    const uint64_t end = layout.cu_seqlens_padded[i + 1];

    std::copy_n(ids, tokens, out_ids + begin);
    std::fill(out_ids + pad, out_ids + end, pad_id);
    std::copy_n(labels, tokens, out_labels + begin);
    std::fill(out_labels + pad, out_labels + end, kUnsupervised);
    std::transform(
        labels, labels + tokens, out_mask + begin,
        [](int32_t label) { return label == kUnsupervised ? 0.0f : 1.0f; });
    std::fill(out_mask + pad, out_mask + end, 0.0f);
    for (uint32_t axis = 0; axis < position_axes; ++axis) {
      int64_t* out_positions = batch->position_ids.data() + axis * total;
      std::copy_n(positions + axis * tokens, tokens, out_positions + begin);
      std::fill(out_positions + pad, out_positions + end, 0);
    }
  }
}

void PackVision(absl::Span<const ImagePiece> pieces, const VisionLayout& layout,
                const PatchShape& shape, const NormaliseTable& table,
                PackedBatch* batch) {
  const uint64_t values = layout.patches() * shape.row();
  const bool bf16 = batch->pixel_type == PixelType::kBfloat16;
  batch->pixel_values.resize(bf16 ? 0 : values);
  batch->pixel_values_bf16.resize(bf16 ? values : 0);
  batch->image_grid_thw = layout.image_grid_thw;
  batch->vision_cu_seqlens = layout.cu_seqlens;
  batch->vision_max_seqlen = layout.max_seqlen;

  for (size_t i = 0; i < pieces.size(); ++i) {
    const ImageRecord& image = pieces[i].record;
    const uint64_t first = layout.patch_offsets[i] * shape.row();
    if (bf16) {
      PatchifyBfloat16(pieces[i].pixels, image.grid_h, image.grid_w, shape,
                       table, batch->pixel_values_bf16.data() + first);
    } else {
      Patchify(pieces[i].pixels, image.grid_h, image.grid_w, shape, table,
               batch->pixel_values.data() + first);
    }
  }
}

}  // namespace ballast
