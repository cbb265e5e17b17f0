#include "trainer_shim/host/pack_cpu.h"

#include <algorithm>

namespace ballast {
namespace {

constexpr int64_t kUnsupervised = -100;

// A run of consecutive tokens of one sample that this rank holds.
struct Run {
  uint64_t place = 0;  // of its first token, in the sample
  uint64_t out = 0;    // of its first token, in the rank's tensors
  uint64_t tokens = 0;
  uint64_t real = 0;  // the first of `tokens`; the rest are padding
};

// Writes the tokens of `run` from one array of a sample, then `pad`.
template <typename Out>
void CopyRun(const int32_t* sample, const Run& run, Out pad, Out* out) {
  std::copy_n(sample + run.place, run.real, out + run.out);
  std::fill(out + run.out + run.real, out + run.out + run.tokens, pad);
}

// Payload arrays begin at multiples of 16 within a block that begins at one.
const int32_t* Int32s(const uint8_t* payload, uint64_t offset) {
  return reinterpret_cast<const int32_t*>(payload + offset);
}

}  // namespace

void SizeText(const TextLayout& layout, uint32_t position_axes,
              PackedBatch* batch) {
  const BatchFields& fields = batch->fields;
  const uint64_t local = layout.padded_tokens() / batch->context.size;
  batch->input_ids.resize(fields.input_ids ? local : 0);
  batch->labels.resize(fields.labels ? local : 0);
  batch->loss_mask.resize(fields.labels ? local : 0);
  batch->position_ids.resize(fields.positions ? position_axes * local : 0);
  batch->attention_mask.resize(batch->padded ? local : 0);
  batch->position_axes = position_axes;
  batch->cu_seqlens = layout.cu_seqlens;
  batch->cu_seqlens_padded = layout.cu_seqlens_padded;
  batch->max_seqlen = layout.max_seqlen;
}

void PackText(absl::Span<const TextPiece> pieces, const TextLayout& layout,
              uint32_t position_axes, int32_t pad_id, PackedBatch* batch) {
  SizeText(layout, position_axes, batch);
  const BatchFields& fields = batch->fields;
  const ContextSlice slice = batch->context;
  const uint64_t local = layout.padded_tokens() / slice.size;
  // Under context parallelism a rank has two runs of each sample.
  const uint64_t runs = slice.size == 1 ? 1 : 2;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint64_t tokens = pieces[i].tokens;
    const LanguagePayload at = LayOutLanguage(tokens, position_axes);
    const int32_t* ids = Int32s(pieces[i].payload, at.ids);
    const int32_t* labels = Int32s(pieces[i].payload, at.labels);
    const int32_t* positions = Int32s(pieces[i].payload, at.positions);
    const uint64_t begin = layout.cu_seqlens_padded[i] / slice.size;
    const uint64_t end = layout.cu_seqlens_padded[i + 1] / slice.size;
    for (uint64_t k = 0; k < runs; ++k) {
      Run run;
      run.tokens = (end - begin) / runs;
      run.out = begin + k * run.tokens;
      run.place = ContextOffset(k * run.tokens, end - begin, slice);
      run.real = std::min(run.tokens, tokens - std::min(tokens, run.place));
      run.place = std::min(run.place, tokens);
      if (fields.input_ids) {
        CopyRun<int64_t>(ids, run, pad_id, batch->input_ids.data());
      }
      if (fields.labels) {
        CopyRun<int64_t>(labels, run, kUnsupervised, batch->labels.data());
        std::transform(batch->labels.data() + run.out,
                       batch->labels.data() + run.out + run.tokens,
                       batch->loss_mask.data() + run.out, [](int64_t label) {
                         return label == kUnsupervised ? 0.0f : 1.0f;
                       });
      }
      if (!batch->attention_mask.empty()) {
        uint8_t* mask = batch->attention_mask.data() + run.out;
        std::fill_n(mask, run.real, 1);
        std::fill(mask + run.real, mask + run.tokens, 0);
      }
      for (uint32_t axis = 0; fields.positions && axis < position_axes;
           ++axis) {
        CopyRun<int64_t>(positions + axis * tokens, run, 0,
                         batch->position_ids.data() + axis * local);
      }
    }
  }
}

void SizeVision(const VisionLayout& layout, const CropLayout& crops,
                PackedBatch* batch) {
  const uint64_t values =
      batch->fields.pixels ? crops.rows() * crops.shape.row() : 0;
  const bool bf16 = batch->pixel_type == PixelType::kBfloat16;
  batch->pixel_values.resize(bf16 ? 0 : values);
  batch->pixel_values_bf16.resize(bf16 ? values : 0);
  batch->image_grid_thw = layout.image_grid_thw;
  batch->vision_cu_seqlens = layout.cu_seqlens;
  batch->vision_max_seqlen =
      std::max(layout.max_seqlen, batch->videos.vision.max_seqlen);
}

void PackVision(absl::Span<const ImagePiece> pieces, const VisionLayout& layout,
                const CropLayout& crops, const NormaliseTable& table,
                PackedBatch* batch) {
  SizeVision(layout, crops, batch);
  if (!batch->fields.pixels) return;
  const bool bf16 = batch->pixel_type == PixelType::kBfloat16;

  for (size_t i = 0; i < pieces.size(); ++i) {
    const ImageRecord& record = pieces[i].record;
    const CropSides sides = {record.grid_h, record.grid_w, record.height,
                             record.width};
    const uint64_t first = crops.row_offsets[i] * crops.shape.row();
    if (bf16) {
      PatchifyBfloat16(pieces[i].pixels, sides, crops.shape, table,
                       batch->pixel_values_bf16.data() + first);
    } else {
      Patchify(pieces[i].pixels, sides, crops.shape, table,
               batch->pixel_values.data() + first);
    }
  }
}

void SizeVideos(PackedBatch* batch) {
  const uint64_t values = batch->fields.pixels
                              ? batch->videos.rows() * batch->crops.shape.row()
                              : 0;
  const bool bf16 = batch->pixel_type == PixelType::kBfloat16;
  batch->pixel_values_videos.resize(bf16 ? 0 : values);
  batch->pixel_values_videos_bf16.resize(bf16 ? values : 0);
}

void PackVideos(absl::Span<const uint8_t* const> frames,
                const NormaliseTable& table, PackedBatch* batch) {
  SizeVideos(batch);
  if (!batch->fields.pixels) return;
  const PatchShape& shape = batch->crops.shape;
  for (const TemporalPatch& patch : batch->videos.patches) {
    const uint64_t first = patch.first_row * shape.row();
    if (batch->pixel_type == PixelType::kBfloat16) {
      PatchifyBfloat16(frames[patch.first], patch.frames, patch.sides, shape,
                       table, batch->pixel_values_videos_bf16.data() + first);
    } else {
      Patchify(frames[patch.first], patch.frames, patch.sides, shape, table,
               batch->pixel_values_videos.data() + first);
    }
  }
}

}  // namespace ballast
