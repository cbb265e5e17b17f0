#ifndef BALLAST_TRAINER_SHIM_FIELD_TABLE_H_
#define BALLAST_TRAINER_SHIM_FIELD_TABLE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_plan.h"
#include "proto/job.pb.h"
#include "trainer_shim/tensor_table.h"

namespace ballast {

// The fields of a job (sources[].fields), as samples and batches have them.
struct FieldTable {
  struct Field {
    std::string tensor;  // "fields.NAME"
    ElementType type = ElementType::kFloat32;
    FieldPlace place;
    bool per_turn = false;
  };
  std::vector<Field> fields;
  FieldCounts counts;
  // The row whose numbers scale loss_mask (kWeightField); -1: none.
  int weight_row = -1;
};

// Errors: INVALID_ARGUMENT (over kMaxFields; a name twice or empty; a type or
// `per` that this release does not know).
absl::StatusOr<std::shared_ptr<const FieldTable>> MakeFieldTable(
    const v1::Job& job);

// The tensors of the fields, for the table of a job.
TensorTable GetFieldRows(const FieldTable& fields);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_FIELD_TABLE_H_
