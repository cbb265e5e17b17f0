#include "trainer_shim/host/pack_cpu.h"

#include <algorithm>
#include <vector>

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
void CopyRun(const int32_t* sample, const Run& run, int64_t pad, int64_t* out) {
  std::copy_n(sample + run.place, run.real, out + run.out);
  std::fill(out + run.out + run.real, out + run.out + run.tokens, pad);
}

// Payload arrays begin at multiples of 16 within a block that begins at one.
const int32_t* Int32s(const uint8_t* payload, uint64_t offset) {
  return reinterpret_cast<const int32_t*>(payload + offset);
}

}  // namespace

void PackText(absl::Span<const TextPiece> pieces, int32_t pad_id,
              PackedBatch* batch) {
  const absl::Span<int64_t> input_ids = batch->Mutable<int64_t>("input_ids");
  const absl::Span<int64_t> out_labels = batch->Mutable<int64_t>("labels");
  const absl::Span<float> loss_mask = batch->Mutable<float>("loss_mask");
  const absl::Span<int64_t> position_ids =
      batch->Mutable<int64_t>("position_ids");
  const absl::Span<uint8_t> mask = batch->Mutable<uint8_t>("attention_mask");
  const std::vector<int32_t>& places = batch->text.cu_seqlens_padded;
  const ContextSlice slice = batch->context;
  const uint32_t axes = batch->position_axes;
  const uint64_t local = batch->text.padded_tokens() / slice.size;
  // Under context parallelism a rank has two runs of each sample.
  const uint64_t runs = slice.size == 1 ? 1 : 2;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint64_t tokens = pieces[i].tokens;
    const LanguagePayload at = LayOutLanguage(tokens, axes);
    const int32_t* ids = Int32s(pieces[i].payload, at.ids);
    const int32_t* labels = Int32s(pieces[i].payload, at.labels);
    const int32_t* positions = Int32s(pieces[i].payload, at.positions);
    const uint64_t begin = places[i] / slice.size;
    const uint64_t end = places[i + 1] / slice.size;
    for (uint64_t k = 0; k < runs; ++k) {
      Run run;
      run.tokens = (end - begin) / runs;
      run.out = begin + k * run.tokens;
      run.place = ContextOffset(k * run.tokens, end - begin, slice);
      run.real = std::min(run.tokens, tokens - std::min(tokens, run.place));
      run.place = std::min(run.place, tokens);
      if (!input_ids.empty()) CopyRun(ids, run, pad_id, input_ids.data());
      if (!out_labels.empty()) {
        CopyRun(labels, run, kUnsupervised, out_labels.data());
        std::transform(out_labels.data() + run.out,
                       out_labels.data() + run.out + run.tokens,
                       loss_mask.data() + run.out, [](int64_t label) {
                         return label == kUnsupervised ? 0.0f : 1.0f;
                       });
      }
      if (!mask.empty()) {
        std::fill_n(mask.data() + run.out, run.real, 1);
        std::fill_n(mask.data() + run.out + run.real, run.tokens - run.real, 0);
      }
      for (uint32_t axis = 0; !position_ids.empty() && axis < axes; ++axis) {
        CopyRun(positions + axis * tokens, run, 0,
                position_ids.data() + axis * local);
      }
    }
  }
}

void PackVision(absl::Span<const ImagePiece> pieces,
                const NormaliseTable& table, PackedBatch* batch) {
  uint8_t* const out = batch->MutableBytes("pixel_values");
  if (out == nullptr) return;
  const CropLayout& crops = batch->crops;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ImageRecord& record = pieces[i].record;
    const CropSides sides = {record.grid_h, record.grid_w, record.height,
                             record.width};
    const uint64_t first = crops.row_offsets[i] * crops.shape.row();
    if (batch->pixel_type == PixelType::kBfloat16) {
      PatchifyBfloat16(pieces[i].pixels, sides, crops.shape, table,
                       reinterpret_cast<uint16_t*>(out) + first);
    } else {
      Patchify(pieces[i].pixels, sides, crops.shape, table,
               reinterpret_cast<float*>(out) + first);
    }
  }
}

void PackVideos(absl::Span<const uint8_t* const> frames,
                const NormaliseTable& table, PackedBatch* batch) {
  uint8_t* const out = batch->MutableBytes("pixel_values_videos");
  if (out == nullptr) return;
  const PatchShape& shape = batch->crops.shape;
  for (const TemporalPatch& patch : batch->videos.patches) {
    const uint64_t first = patch.first_row * shape.row();
    if (batch->pixel_type == PixelType::kBfloat16) {
      PatchifyBfloat16(frames[patch.first], patch.frames, patch.sides, shape,
                       table, reinterpret_cast<uint16_t*>(out) + first);
    } else {
      Patchify(frames[patch.first], patch.frames, patch.sides, shape, table,
               reinterpret_cast<float*>(out) + first);
    }
  }
}

}  // namespace ballast
