#ifndef BALLAST_TRAINER_SHIM_ROLE_FIELDS_H_
#define BALLAST_TRAINER_SHIM_ROLE_FIELDS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The place of a trainer's rank in its module's layout, in addition to its
// data-parallel rank (v1::Role). All ranks that share a data-parallel rank have
// the same block; their place decides which part of the batch each keeps
// (BatchFields).
struct TrainerPlace {
  uint32_t tp_rank = 0;  // tensor
  uint32_t pp_rank = 0;  // pipeline
  uint32_t cp_rank = 0;  // context
  // A language stage receives these at any pipeline stage. Multi-token
  // prediction (MTP) needs them. Ignored for vision.
  bool needs_input_ids = false;
  bool needs_labels = false;

  bool operator==(const TrainerPlace& other) const = default;
};

// Number of a module's ranks in each direction other than data; each at least
// 1.
struct ModuleLayout {
  uint32_t tp = 1;
  uint32_t pp = 1;
  uint32_t cp = 1;
};

// The tensors of a batch that a rank receives. The others are not computed, and
// a rank that receives none pulls no block. Every rank receives sample
// identities and totals. Plain values and pure functions.
struct BatchFields {
  bool input_ids = true;
  bool labels = true;  // and loss_mask
  // position_ids, cu_seqlens, cu_seqlens_padded and max_seqlen.
  bool positions = true;
  // pixel_values, image_grid_thw, vision_cu_seqlens and vision_max_seqlen, and
  // the tensors of videos.
  bool pixels = true;
  // input_features and the tensors of clips of audio.
  bool features = false;

  bool any() const {
    return input_ids || labels || positions || pixels || features;
  }
  bool operator==(const BatchFields& other) const = default;
};

// A pipeline stage, counted through all parts of the model. With virtual stages
// a rank holds several parts: part `part` of pipeline rank `pp_rank` of `pp` is
// stage part * pp + pp_rank of pp * parts, as in Megatron-Core.
struct PipelineStage {
  uint32_t number = 0;
  uint32_t count = 1;
};
PipelineStage GetStage(uint32_t pp_rank, uint32_t pp, uint32_t part = 0,
                       uint32_t parts = 1);

// The fields that one stage of `module` receives:
//
//   language, first stage   input_ids, positions
//   language, a middle one  positions
//   language, last stage    labels, positions
//   images, first stage     pixels
//   images, others          nothing
//   audio                   likewise, features
//
// "images" is an encoder of images, "audio" one of audio. A language stage also
// receives the tensors that `place` requests. Language stages never receive
// pixels: a process that is also an encoder's rank gets them from that shim.
// tp_rank and cp_rank make no difference: tensor peers receive the same
// tensors, context peers the same fields of other tokens.
BatchFields FieldsOfStage(v1::Module module, const PipelineStage& stage,
                          const TrainerPlace& place);

// The fields that a rank receives: the union over all its parts. The number of
// parts does not matter: the union is what the rank would receive as a single
// stage.
BatchFields GetFields(v1::Module module, const TrainerPlace& place,
                      const ModuleLayout& layout);

// INVALID_ARGUMENT naming the rank of `place` that `layout` lacks.
absl::Status CheckPlace(const TrainerPlace& place, const ModuleLayout& layout);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_ROLE_FIELDS_H_
