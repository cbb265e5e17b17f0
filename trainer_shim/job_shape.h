#ifndef BALLAST_TRAINER_SHIM_JOB_SHAPE_H_
#define BALLAST_TRAINER_SHIM_JOB_SHAPE_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/block/block_plan.h"
#include "proto/image/resample_weights.h"
#include "proto/job.pb.h"
#include "proto/schedule/delivery_rule.h"
#include "trainer_shim/context_slice.h"
#include "trainer_shim/crop_layout.h"
#include "trainer_shim/role_fields.h"
#include "trainer_shim/tensor_table.h"
#include "trainer_shim/totals.h"
#include "trainer_shim/trainer_place.h"

namespace ballast {

// The part of the job that a rank of one module needs to plan and pack. It is
// checked once, so that later code can rely on every size.
struct JobShape {
  uint32_t dp = 1;     // data-parallel ranks of the module
  uint32_t align = 1;  // tokens
  // The padding that totals count, on ranks of any module: that of the language
  // module if there is one, since it is what is trained on. Language ranks lay
  // out their samples by it.
  SamplePadding padding;
  DeliveryRule delivery;
  BlockGeometry block;
  uint32_t merge = 1;  // patches on a side that make one image token
  CropForm crops;
  // Images may travel encoded (model.decode `device`), and are then resized so.
  bool encoded_images = false;
  Resampling resampling;
  std::array<double, 3> mean = {};
  std::array<double, 3> std = {};
  int32_t pad_id = 0;

  // The rank's place in the module, the fields that it receives there, and its
  // slice of the text tensors.
  TrainerPlace place;
  ModuleLayout layout;
  BatchFields fields;
  ContextSlice context;
  // The tensors that batches may have.
  std::shared_ptr<const TensorTable> tensors;
  // balance.placement is `split`: batches hold an EmbeddingPlan.
  bool split_placement = false;

  // Whether ranks of the module exchange samples at all.
  bool exchanges() const { return delivery.moves() && dp > 1; }
};

// The module's layout. A count of 0, from an older server, is taken as 1.
ModuleLayout LayoutOf(const v1::Job::ModuleSize& module);

// Errors: as RuleOf; INVALID_ARGUMENT (the role's module or rank, or the place,
// does not exist; a size out of its range, naming the field, the value and the
// range; an alignment that context parallelism cannot divide).
absl::StatusOr<JobShape> ShapeOf(const v1::Job& job, const v1::Role& role,
                                 const TrainerPlace& place = {});

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_JOB_SHAPE_H_
