#ifndef BALLAST_SERVER_SCHEDULE_COST_MODEL_H_
#define BALLAST_SERVER_SCHEDULE_COST_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "server/config/model_profile.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// What a sample amounts to once its images are resized.
struct SampleSize {
  uint64_t patches = 0;
  uint32_t tokens = 0;  // real tokens with placeholders
  uint32_t label_tokens = 0;
  std::vector<ImageGrid> grids;  // one an image
};

// From what the index holds. Errors: INVALID_ARGUMENT (an image that no grid
// fits; more tokens than 32 bits count).
absl::StatusOr<SampleSize> MeasureSample(const IndexedSample& sample,
                                         const v1::Model& model);

// linear*n + quadratic*n*n, evaluated in that order in IEEE doubles; n =
// patches for vision, tokens for language.
double SampleCost(const SampleSize& size, v1::Module module,
                  const v1::Balance::Cost& coefficients);

// The coefficients that step `step` goes by: those of the last of cost_changes
// whose step is not above it, or balance.cost.
const v1::Balance::Cost& CostAt(const v1::Balance& balance, uint64_t step);

// What the balancer evens out: the sum over both modules, whichever are
// configured, so that every module derives the same schedule.
double JointCost(const SampleSize& size, const v1::Balance::Cost& coefficients);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_COST_MODEL_H_
