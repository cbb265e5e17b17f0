#ifndef BALLAST_TRAINER_SHIM_BATCH_TIMES_H_
#define BALLAST_TRAINER_SHIM_BATCH_TIMES_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace ballast {

// Time that each phase of making one micro-batch's packed batch took, from its
// block on (StepTiming in proto/timing.proto). Absent: there is no such phase,
// or it is not known.
struct BatchTimes {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  std::optional<absl::Duration> copy;  // from host to device
  // Between ranks; includes other ranks' delays.
  std::optional<absl::Duration> exchange;
  std::optional<absl::Duration> pack;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BATCH_TIMES_H_
