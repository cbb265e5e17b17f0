#include "trainer_shim/batch_info.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"

namespace ballast {

PipelineStage GetStage(uint32_t pp_rank, uint32_t pp, uint32_t part,
                       uint32_t parts) {
  return {part * pp + pp_rank, pp * parts};
}

BatchFields FieldsOfStage(v1::Module module, const PipelineStage& stage,
                          const TrainerPlace& place) {
  const bool first = stage.number == 0;
  const bool last = stage.number + 1 == stage.count;
  BatchFields fields;
  fields.pixels = GetMedia(module) == Media::kImages && first;
  fields.features = GetMedia(module) == Media::kRows && first;
  fields.positions = IsLanguage(module);
  fields.input_ids = fields.positions && (first || place.needs_input_ids);
  fields.labels = fields.positions && (last || place.needs_labels);
  return fields;
}

BatchFields GetFields(v1::Module module, const TrainerPlace& place,
                      const ModuleLayout& layout) {
  // The first stage is part 0 of rank 0, the last one the last part of the last
  // rank.
  return FieldsOfStage(module, GetStage(place.pp_rank, layout.pp), place);
}

absl::Status CheckPlace(const TrainerPlace& place, const ModuleLayout& layout) {
  const struct {
    absl::string_view name;
    uint32_t rank;
    uint32_t ranks;
  } directions[] = {{"tensor", place.tp_rank, layout.tp},
                    {"pipeline", place.pp_rank, layout.pp},
                    {"context", place.cp_rank, layout.cp}};
  for (const auto& [name, rank, ranks] : directions) {
    if (rank < ranks) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the module has ", ranks, " ", name,
                     "-parallel ranks; rank ", rank, " was asked for"));
  }
  return absl::OkStatus();
}

uint64_t RowLength(const v1::MicroBatchSchedule& micro_batch,
                   const SamplePadding& padding) {
  if (!padding.rows) return 0;
  if (padding.row_length != 0) return padding.row_length;
  uint64_t longest = 0;
  for (int i = 0; i < micro_batch.tokens_size(); ++i) {
    ForEachSequence(micro_batch.tokens(i), FirstTokens(micro_batch, i),
                    [&](uint64_t n) { longest = std::max(longest, n); });
  }
  return AlignUp(longest, padding.align);
}

PackedTotals& PackedTotals::operator+=(const PackedTotals& other) {
  samples += other.samples;
  tokens += other.tokens;
  tokens_squared += other.tokens_squared;
  padded_tokens += other.padded_tokens;
  padded_tokens_squared += other.padded_tokens_squared;
  label_tokens += other.label_tokens;
  patches += other.patches;
  images += other.images;
  videos += other.videos;
  clips += other.clips;
  frames += other.frames;
  return *this;
}

PackedTotals SumTotals(const v1::MicroBatchSchedule& micro_batch,
                       const SamplePadding& padding,
                       const std::optional<v1::Role>& owner) {
  PackedTotals totals;
  const v1::ModuleSchedule* module =
      owner ? FindModule(micro_batch, owner->module()) : nullptr;
  if (owner && module == nullptr) return totals;
  const std::vector<uint64_t> patches = SamplePatches(micro_batch);
  const std::vector<uint32_t> videos = SampleVideos(micro_batch);
  const std::vector<uint64_t> frames = SampleFrames(micro_batch);
  const uint64_t row = RowLength(micro_batch, padding);
  for (int i = 0; i < micro_batch.tokens_size(); ++i) {
    PackedTotals sample;
    sample.samples = 1;
    sample.tokens = micro_batch.tokens(i);
    ForEachSequence(micro_batch.tokens(i), FirstTokens(micro_batch, i),
                    [&](uint64_t n) {
                      const uint64_t padded =
                          padding.rows ? row : AlignUp(n, padding.align);
                      sample.tokens_squared += n * n;
                      sample.padded_tokens += padded;
                      sample.padded_tokens_squared += padded * padded;
                    });
    sample.label_tokens = micro_batch.label_tokens(i);
    sample.images = micro_batch.images(i) - videos[i];
    sample.videos = videos[i];
    sample.patches = patches[i];
    sample.clips = micro_batch.clips().empty() ? 0 : micro_batch.clips(i);
    sample.frames = frames[i];
    if (!owner || TrainsOn(*module, i, owner->dp_rank())) totals += sample;
  }
  return totals;
}

uint64_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kPixels:
      return 0;
    case ElementType::kInt64:
      return 8;
    case ElementType::kInt32:
    case ElementType::kFloat32:
      return 4;
    case ElementType::kBfloat16:
      return 2;
    case ElementType::kBool:
      return 1;
  }
  return 0;
}

absl::string_view ElementName(ElementType type) {
  switch (type) {
    case ElementType::kPixels:
      return "float32 or bfloat16";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kBfloat16:
      return "bfloat16";
    case ElementType::kBool:
      return "bool";
  }
  return "";
}

absl::string_view JoinName(Join join) {
  switch (join) {
    case Join::kTokens:
      return "tokens";
    case Join::kSums:
      return "sums";
    case Join::kItems:
      return "items";
    case Join::kPaddedItems:
      return "padded items";
    case Join::kRanks:
      return "ranks";
    case Join::kSequences:
      return "sequences";
  }
  return "";
}

absl::string_view MemoryName(Memory memory) {
  switch (memory) {
    case Memory::kPacked:
      return "packed";
    case Memory::kListed:
      return "listed";
    case Memory::kListedOnce:
      return "listed once";
    case Memory::kHost:
      return "host";
  }
  return "";
}

absl::string_view GetReceivers(BatchField field) {
  if (field == &BatchFields::input_ids) return "language, first stage";
  if (field == &BatchFields::labels) return "language, last stage";
  if (field == &BatchFields::positions) return "language, every stage";
  if (field == &BatchFields::pixels) return "vision, first stage";
  if (field == &BatchFields::features) return "audio, first stage";
  return "both, first stage, placement `split`";
}

TensorShape::TensorShape(std::initializer_list<int64_t> of) : rank(of.size()) {
  std::copy(of.begin(), of.end(), sides.begin());
}

int64_t TensorShape::elements() const {
  int64_t count = 1;
  for (uint32_t i = 0; i < rank; ++i) count *= sides[i];
  return count;
}

}  // namespace ballast
