#include "trainer_shim/host/packed_batch.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "proto/schedule/schedule_table.h"

namespace ballast {
namespace {

class Digest {
 public:
  Digest() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }

  template <typename T>
  void Add(absl::string_view name, const T* values, uint64_t count) {
    const uint64_t bytes = count * sizeof(T);
    Update(name.data(), name.size());
    Update(&bytes, sizeof(bytes));
    Update(values, bytes);
  }
  template <typename T>
  void Add(absl::string_view name, const std::vector<T>& values) {
    Add(name, values.data(), values.size());
  }

  std::string Hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  void Update(const void* data, size_t bytes) {
    if (bytes > 0) XXH3_128bits_update(state_.get(), data, bytes);
  }

  std::unique_ptr<XXH3_state_t, Free> state_;
};

// The grid, the time and the values of video `video`.
void AddVideo(const PackedBatch& batch, uint64_t video, Digest* digest) {
  const VideoLayout& videos = batch.videos;
  digest->Add("video_grid_thw", videos.vision.image_grid_thw.data() + 3 * video,
              3);
  digest->Add("second_per_grid_ts", videos.second_per_grid_ts.data() + video,
              1);
  const uint64_t row = batch.crops.shape.row();
  const uint64_t first = videos.row_offsets[video] * row;
  const uint64_t count = videos.row_offsets[video + 1] * row - first;
  const auto add = [&](absl::string_view name, const auto& values) {
    if (!values.empty()) digest->Add(name, values.data() + first, count);
  };
  add("pixel_values_videos", batch.Get<float>("pixel_values_videos"));
  add("pixel_values_videos_bf16", batch.Get<uint16_t>("pixel_values_videos"));
}

// Crops and videos of a sample. Frames that a model takes like an image's crops
// are crops, and are in pixel_values.
struct Items {
  uint32_t crops = 0;
  uint32_t videos = 0;
  uint32_t clips = 0;  // of audio
};

absl::Span<const FieldTable::Field> GetFields(const BatchInfo& info) {
  return info.field_table == nullptr
             ? absl::Span<const FieldTable::Field>()
             : absl::MakeConstSpan(info.field_table->fields);
}

// The items of every sample of the step, by position.
std::map<uint64_t, Items> GetItems(const v1::StepSchedule& schedule) {
  std::map<uint64_t, Items> all;
  for (const auto& micro_batch : schedule.micro_batches()) {
    const std::vector<uint32_t> first = GetFirstEntries(micro_batch).image;
    for (int i = 0; i < micro_batch.position_size(); ++i) {
      Items& items = all[micro_batch.position(i)];
      if (!micro_batch.clips().empty()) items.clips = micro_batch.clips(i);
      for (uint32_t k = first[i]; k < first[i + 1]; ++k) {
        if (GridT(micro_batch, k) != 0 &&
            micro_batch.seconds_per_patch(k) > 0) {
          ++items.videos;
        } else {
          items.crops += GetCrops(micro_batch, k);
        }
      }
    }
  }
  return all;
}

// The values of crop `crop`, without the padding to its right and below it in
// its tile, which follows from the other crops of the batch.
template <typename T>
void AddCrop(const PackedBatch& batch, absl::string_view name,
             absl::Span<const T> pixels, uint64_t crop, Digest* digest) {
  if (pixels.empty()) return;
  const CropLayout& crops = batch.crops;
  const PatchShape& shape = crops.shape;
  const T* at = pixels.data() + crops.row_offsets[crop] * shape.row();
  if (!crops.tiles) {
    const uint64_t rows = crops.row_offsets[crop + 1] - crops.row_offsets[crop];
    return digest->Add(name, at, rows * shape.row());
  }
  const uint64_t height = crops.imgs_sizes[2 * crop];
  const uint64_t width = crops.imgs_sizes[2 * crop + 1];
  for (uint64_t line = 0; line < 3 * height; ++line) {
    const uint64_t y = line / height * shape.tile_h + line % height;
    digest->Add(name, at + y * shape.tile_w, width);
  }
}

}  // namespace

std::vector<TensorView> PackedBatch::Views() const {
  std::vector<TensorView> views;
  ListTensors(
      *this,
      {kHostMemory, packed.data(), lists.empty() ? nullptr : lists.data()},
      &views);
  return views;
}

const void* PackedBatch::Data(const BatchTensor& tensor) const {
  if (tensor.row->memory == Memory::kPacked) {
    return packed.data() + tensor.offset;
  }
  if (tensor.row->memory == Memory::kHost || lists.empty()) {
    return tensor.row->value(*this)->data;
  }
  return lists.data() + tensor.offset;
}

std::string ComputeDigest(const PackedBatch& batch) {
  return ComputeDigest(batch, batch.Views());
}

std::vector<std::string> SampleDigests(const PackedBatch& batch) {
  std::map<uint64_t, Items> items = GetItems(*batch.schedule);
  const std::vector<int32_t>& places = batch.text.cu_seqlens_padded;
  const uint64_t slices = batch.context.size;
  const auto grids = batch.Get<int64_t>("image_grid_thw");
  uint64_t crop = 0;
  uint64_t video = 0;
  uint64_t clip = 0;
  std::vector<std::string> digests;
  size_t sequence = 0;
  // The digest of a pair covers its two sequences.
  const auto add_text = [&](Digest* digest) {
    const uint64_t first = places[sequence] / slices;
    const uint64_t count = places[sequence + 1] / slices - first;
    const auto add = [&](absl::string_view name, const auto& values) {
      if (!values.empty()) digest->Add(name, values.data() + first, count);
    };
    add("input_ids", batch.Get<int64_t>("input_ids"));
    add("labels", batch.Get<int64_t>("labels"));
    add("loss_mask", batch.Get<float>("loss_mask"));
    const auto add_axes = [&](const auto& positions) {
      const uint64_t tokens = positions.size() / batch.position_axes;
      for (uint32_t axis = 0; axis < batch.position_axes; ++axis) {
        add("position_ids", positions.subspan(axis * tokens, tokens));
      }
    };
    if (batch.float_positions) {
      add_axes(batch.Get<float>("position_ids"));
    } else {
      add_axes(batch.Get<int64_t>("position_ids"));
    }
    for (const FieldTable::Field& field : GetFields(batch)) {
      const auto values = batch.Get<uint32_t>(field.tensor);
      if (field.place.per_token) {
        add(field.tensor, values);
      } else if (!values.empty()) {
        digest->Add(field.tensor, values.data() + sequence, 1);
      }
    }
    ++sequence;
  };
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    Digest digest;
    if (!places.empty()) {
      if (!batch.pair.empty() && batch.pair[sequence] == 0) add_text(&digest);
      add_text(&digest);
    }
    const Items& of = items[batch.samples[i].position];
    for (uint32_t left = of.crops; left > 0 && !grids.empty(); --left, ++crop) {
      digest.Add("image_grid_thw", grids.data() + 3 * crop, 3);
      AddCrop(batch, "pixel_values", batch.Get<float>("pixel_values"), crop,
              &digest);
      AddCrop(batch, "pixel_values_bf16", batch.Get<uint16_t>("pixel_values"),
              crop, &digest);
    }
    for (uint32_t left = of.videos; left > 0 && batch.videos.listed;
         --left, ++video) {
      AddVideo(batch, video, &digest);
    }
    for (uint32_t left = of.clips; left > 0 && batch.clips.listed;
         --left, ++clip) {
      const ClipLayout& clips = batch.clips;
      const uint64_t first = uint64_t{clips.width} * clips.cu_rows[clip];
      const uint64_t end = uint64_t{clips.width} * clips.cu_rows[clip + 1];
      digest.Add("audio_feature_lengths", clips.frames.data() + clip, 1);
      digest.Add(clips.tensor, batch.Get<float>(clips.tensor).data() + first,
                 end - first);
    }
    digests.push_back(digest.Hex());
  }
  return digests;
}

namespace {

constexpr int64_t kUnsupervised = -100;

// A run of consecutive tokens of one sample that this rank holds.
struct Run {
  uint64_t place = 0;  // of its first token, in the sample
  uint64_t out = 0;    // of its first token, in the rank's tensors
  uint64_t tokens = 0;
  uint64_t real = 0;  // the first of `tokens`; the rest is padding
};

// Writes the tokens of `run` from one array of a sample, then `pad`.
template <typename Value, typename Out>
void CopyRun(const Value* sample, const Run& run, Out pad, Out* out) {
  std::copy_n(sample + run.place, run.real, out + run.out);
  std::fill(out + run.out + run.real, out + run.out + run.tokens, pad);
}

// Payload arrays begin at multiples of 16 within a block, which begins at one,
// too.
const int32_t* Int32s(const uint8_t* payload, uint64_t offset) {
  return reinterpret_cast<const int32_t*>(payload + offset);
}

// 32 bits of either type.
const uint32_t* Bits(const uint8_t* payload, uint64_t offset) {
  return reinterpret_cast<const uint32_t*>(payload + offset);
}

}  // namespace

void PackText(absl::Span<const TextPiece> pieces, int32_t pad_id,
              PackedBatch* batch) {
  const absl::Span<int64_t> input_ids = batch->Mutable<int64_t>("input_ids");
  const absl::Span<int64_t> out_labels = batch->Mutable<int64_t>("labels");
  const absl::Span<float> loss_mask = batch->Mutable<float>("loss_mask");
  // One of the two; the payload has int32, or the floats themselves.
  absl::Span<int64_t> position_ids;
  absl::Span<float> float_ids;
  if (batch->float_positions) {
    float_ids = batch->Mutable<float>("position_ids");
  } else {
    position_ids = batch->Mutable<int64_t>("position_ids");
  }
  const absl::Span<uint8_t> mask = batch->Mutable<uint8_t>("attention_mask");
  const absl::Span<int64_t> pack_ids =
      batch->Mutable<int64_t>("pack_input_ids");
  // Either type has its own span, of which one is empty.
  absl::Span<int64_t> pack_positions;
  absl::Span<float> float_pack;
  if (batch->float_positions) {
    float_pack = batch->Mutable<float>("pack_position_ids");
  } else {
    pack_positions = batch->Mutable<int64_t>("pack_position_ids");
  }
  // The tensor of each field; null where the rank does not receive it.
  const absl::Span<const FieldTable::Field> fields = GetFields(*batch);
  std::array<uint32_t*, kMaxFields> field_out = {};
  for (size_t f = 0; f < fields.size(); ++f) {
    field_out[f] = batch->Mutable<uint32_t>(fields[f].tensor).data();
  }
  const FieldCounts counts =
      fields.empty() ? FieldCounts() : batch->field_table->counts;
  const int weight_row = fields.empty() ? -1 : batch->field_table->weight_row;
  const std::vector<int32_t>& places = batch->text.cu_seqlens_padded;
  const ContextSlice slice = batch->context;
  const uint32_t axes = batch->position_axes;
  const uint64_t local = batch->text.padded_tokens() / slice.size;
  // Under context parallelism a rank has two runs of each sample.
  const uint64_t runs = slice.size == 1 ? 1 : 2;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint64_t tokens = pieces[i].tokens;
    const LanguagePayload at = LayOutLanguage(tokens, axes, counts);
    const uint32_t* const values = Bits(pieces[i].payload, at.values);
    const uint32_t* const rows = Bits(pieces[i].payload, at.rows);
    const float* const weights =
        weight_row < 0
            ? nullptr
            : reinterpret_cast<const float*>(rows + weight_row * tokens);
    for (size_t f = 0; f < fields.size(); ++f) {
      if (field_out[f] == nullptr || fields[f].place.per_token) continue;
      field_out[f][i] = values[fields[f].place.number];
    }
    const int32_t* ids = Int32s(pieces[i].payload, at.ids);
    const int32_t* labels = Int32s(pieces[i].payload, at.labels);
    const int32_t* positions = Int32s(pieces[i].payload, at.positions);
    const auto copy_positions = [&](const Run& run, uint64_t stride,
                                    absl::Span<int64_t> out,
                                    absl::Span<float> float_out) {
      for (uint32_t axis = 0; axis < axes; ++axis) {
        const int32_t* const of_axis = positions + axis * tokens;
        if (!out.empty()) {
          CopyRun(of_axis, run, int64_t{0}, out.data() + axis * stride);
        }
        if (!float_out.empty()) {
          CopyRun(reinterpret_cast<const float*>(of_axis), run, 0.0f,
                  float_out.data() + axis * stride);
        }
      }
    };
    Run whole;
    whole.out = places[i];
    whole.tokens = places[i + 1] - places[i];
    whole.real = tokens;
    if (!pack_ids.empty()) {
      CopyRun(ids, whole, int64_t{pad_id}, pack_ids.data());
    }
    copy_positions(whole, batch->text.padded_tokens(), pack_positions,
                   float_pack);
    const uint64_t begin = places[i] / slice.size;
    const uint64_t end = places[i + 1] / slice.size;
    for (uint64_t k = 0; k < runs; ++k) {
      Run run;
      run.tokens = (end - begin) / runs;
      run.out = begin + k * run.tokens;
      run.place = ContextOffset(k * run.tokens, end - begin, slice);
      run.real = std::min(run.tokens, tokens - std::min(tokens, run.place));
      run.place = std::min(run.place, tokens);
      if (!input_ids.empty()) {
        CopyRun(ids, run, int64_t{pad_id}, input_ids.data());
      }
      if (!out_labels.empty()) {
        CopyRun(labels, run, kUnsupervised, out_labels.data());
        for (uint64_t t = 0; t < run.tokens; ++t) {
          const int64_t label = out_labels[run.out + t];
          // A label is the next token.
          const uint64_t behind = run.place + t + 1;
          const float weight =
              weights != nullptr && behind < tokens ? weights[behind] : 1.0f;
          loss_mask[run.out + t] = label == kUnsupervised ? 0.0f : weight;
        }
      }
      for (size_t f = 0; f < fields.size(); ++f) {
        if (field_out[f] == nullptr || !fields[f].place.per_token) continue;
        CopyRun(rows + fields[f].place.number * tokens, run, uint32_t{0},
                field_out[f]);
      }
      if (!mask.empty()) {
        std::fill_n(mask.data() + run.out, run.real, 1);
        std::fill_n(mask.data() + run.out + run.real, run.tokens - run.real, 0);
      }
      copy_positions(run, local, position_ids, float_ids);
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

void PackClips(absl::Span<const uint8_t* const> clips, PackedBatch* batch) {
  uint8_t* const out = batch->MutableBytes(batch->clips.tensor);
  if (out == nullptr) return;
  const ClipLayout& layout = batch->clips;
  const uint64_t row = uint64_t{layout.width} * sizeof(float);
  for (size_t i = 0; i < clips.size(); ++i) {
    std::memcpy(out + row * layout.cu_rows[i], clips[i],
                row * (layout.cu_rows[i + 1] - layout.cu_rows[i]));
  }
  const uint64_t packed = layout.cu_rows[clips.size()];
  std::memset(out + row * packed, 0, row * (layout.cu_rows.back() - packed));
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
