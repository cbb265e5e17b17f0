#ifndef BALLAST_SERVER_SERVICE_TIMING_STORE_H_
#define BALLAST_SERVER_SERVICE_TIMING_STORE_H_

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "proto/timing.pb.h"

namespace ballast {

// The last kMaxTimings timings that ranks reported to this server, some 8 MiB
// at most. A timing of the same (role, step, micro-batch) takes the place of
// the one before; a new one, when all places are taken, that of the one that
// was first reported longest ago. Thread-safe.
class TimingStore {
 public:
  static constexpr size_t kMaxTimings = 65536;
  // Of one Add.
  static constexpr size_t kMaxReported = 4096;

  explicit TimingStore(const v1::Job& job);

  // Keeps `timings`, or none of them. Errors: INVALID_ARGUMENT (no timing, or
  // more than kMaxReported; no such role; a step whose positions do not fit 64
  // bits; a micro-batch that no step of the job can have, which is not to say
  // that this step has it; a time that is negative or not finite).
  absl::Status Add(absl::Span<const v1::StepTiming* const> timings);

  // What is kept of steps from `from_step` on and of `module` (unspecified: of
  // all), in ascending order of (step, micro-batch, module, rank).
  std::vector<v1::StepTiming> Get(uint64_t from_step, v1::Module module) const;

 private:
  // (step, micro-batch, module, rank)
  using Key = std::tuple<uint64_t, uint32_t, int, uint32_t>;
  struct Kept {
    Key key;
    double milliseconds = 0;
  };

  absl::Status Check(const v1::StepTiming& timing) const;

  const v1::Job job_;
  uint64_t grid_ = 1;  // LCM of the modules' dp sizes
  mutable Mutex mutex_;
  // A ring once it is full; the oldest is then at oldest_.
  std::vector<Kept> ring_ ABSL_GUARDED_BY(mutex_);
  size_t oldest_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<Key, size_t> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_TIMING_STORE_H_
