#ifndef BALLAST_TESTS_FAKES_ROLE_H_
#define BALLAST_TESTS_FAKES_ROLE_H_

#include <cstdint>

#include "proto/job.pb.h"
#include "proto/timing.pb.h"

namespace ballast {

inline v1::Role RoleOf(v1::Module module, uint32_t rank) {
  v1::Role role;
  role.set_module(module);
  role.set_dp_rank(rank);
  return role;
}

// The time that `rank` of `module` took for a micro-batch.
inline v1::StepTiming GetTiming(v1::Module module, uint32_t rank, uint64_t step,
                                uint32_t micro_batch, double milliseconds) {
  v1::StepTiming timing;
  *timing.mutable_role() = RoleOf(module, rank);
  timing.set_step(step);
  timing.set_micro_batch(micro_batch);
  timing.set_milliseconds(milliseconds);
  return timing;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_ROLE_H_
