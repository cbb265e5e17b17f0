#ifndef BALLAST_TRAINER_SHIM_ROLE_FIELDS_H_
#define BALLAST_TRAINER_SHIM_ROLE_FIELDS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/trainer_place.h"

namespace ballast {

// Which tensors of a batch a rank receives. The others are not computed, and
// where there are none at all no block is pulled. Sample identities and totals
// every rank receives. Plain values and pure functions.
struct BatchFields {
  bool input_ids = true;
  bool labels = true;  // and loss_mask
  // position_ids, cu_seqlens, cu_seqlens_padded and max_seqlen.
  bool positions = true;
  // pixel_values, image_grid_thw, vision_cu_seqlens and vision_max_seqlen.
  bool pixels = true;

  bool any() const { return input_ids || labels || positions || pixels; }
  bool operator==(const BatchFields& other) const = default;
};

// A stage of the pipeline through all parts of the model. With virtual stages a
// rank holds several parts: part `part` of pipeline rank `pp_rank` of `pp` is
// stage part * pp + pp_rank of pp * parts, as Megatron-Core counts them.
struct PipelineStage {
  uint32_t number = 0;
  uint32_t count = 1;
};
PipelineStage StageOf(uint32_t pp_rank, uint32_t pp, uint32_t part = 0,
                      uint32_t parts = 1);

// The fields that one stage of `module` receives:
//
//   language, first stage   input_ids, positions
//   language, a middle one  positions
//   language, last stage    labels, positions
//   vision, first stage     pixels
//   vision, others          nothing
//
// and a language stage what `place` says that it needs besides. Language stages
// never receive pixels: a process that is also a rank of vision (FeedsVision)
// has them from its vision shim. tp_rank and cp_rank make no difference:
// tensor peers receive the same, context peers the same fields of other tokens.
BatchFields FieldsOfStage(v1::Module module, const PipelineStage& stage,
                          const TrainerPlace& place);

// The fields that a rank receives: those of all its parts together. However
// many those are, they are the fields that the rank would receive as a single
// stage.
BatchFields FieldsOf(v1::Module module, const TrainerPlace& place,
                     const ModuleLayout& layout);

// Whether a process whose language rank stands at `place` runs the vision tower
// too, and so has a shim of the vision module beside: `colocated`, and on the
// first pipeline stage, where embeddings are put in the place of image tokens.
bool FeedsVision(const TrainerPlace& place, bool colocated);

// INVALID_ARGUMENT naming the rank of `place` that `layout` lacks.
absl::Status CheckPlace(const TrainerPlace& place, const ModuleLayout& layout);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_ROLE_FIELDS_H_
