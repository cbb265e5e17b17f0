#ifndef BALLAST_TRAINER_SHIM_BATCH_TIMES_H_
#define BALLAST_TRAINER_SHIM_BATCH_TIMES_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace ballast {

// Time spent in each phase between a micro-batch's block and its packed batch
// (StepTiming in proto/timing.proto). Absent: there is no such phase, or its
// time is not known.
struct BatchTimes {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  std::optional<absl::Duration> copy;  // from host to device
  // Between ranks; includes other ranks' delays.
  std::optional<absl::Duration> exchange;
  // Of images that travelled encoded, with resizing and waiting for the
  // engines.
  std::optional<absl::Duration> decode;
  std::optional<absl::Duration> pack;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BATCH_TIMES_H_
