#ifndef BALLAST_TRAINER_SHIM_C_API_BATCH_VIEW_H_
#define BALLAST_TRAINER_SHIM_C_API_BATCH_VIEW_H_

#include <cstdint>
#include <vector>

#include "proto/job.pb.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/totals.h"

namespace ballast {

// An array in host or device memory, which it does not own.
struct TensorView {
  const char* name = "";  // static
  ballast_dtype dtype = BALLAST_UINT8;
  const void* data = nullptr;
  ballast_device_type device_type = BALLAST_DEVICE_CPU;
  int32_t device_id = 0;
  std::vector<int64_t> shape;
};

// A packed batch as ballast_batch shows it, whatever made it: what it points to
// lives as long as the batch.
struct BatchView {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint32_t num_micro_batches = 0;  // of the step
  v1::Role role;
  std::vector<TensorView> tensors;
  const std::vector<PackedSample>* samples = nullptr;
  // [samples]; null: PackedSample::placeholder says it.
  const uint8_t* placeholders = nullptr;
  int32_t max_seqlen = 0;
  int32_t vision_max_seqlen = 0;
  bool dummy_image = false;
  PackedTotals totals;
  PackedTotals micro_batch_totals;
  PackedTotals step_totals;
  uint64_t bytes_read = 0;
  uint64_t bytes_moved = 0;
  double pack_ms = 0;
};

// `batch` as a view. `patch_values`: values of a patch, V of c_api.h. Pure.
BatchView ViewOf(const PackedBatch& batch, uint64_t patch_values,
                 uint32_t num_micro_batches);

// Values of a patch of the job's model.
uint64_t PatchValues(const v1::Job& job);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_BATCH_VIEW_H_
