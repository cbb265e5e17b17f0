#ifndef BALLAST_TRAINER_SHIM_TRAINER_PLACE_H_
#define BALLAST_TRAINER_SHIM_TRAINER_PLACE_H_

#include <cstdint>

namespace ballast {

// The place of a trainer's rank in its module's layout, in addition to its
// data-parallel rank (v1::Role). All ranks that share a data-parallel rank have
// the same block; their place decides what each keeps of the batch
// (role_fields.h).
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

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_TRAINER_PLACE_H_
