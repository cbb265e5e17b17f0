#include "trainer_shim/role_fields.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/schedule/module.h"

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
  fields.features = GetMedia(module) == Media::kAudio && first;
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

}  // namespace ballast
