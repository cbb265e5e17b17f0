#ifndef BALLAST_SERVER_SERVE_MONITOR_TIMING_STORE_H_
#define BALLAST_SERVER_SERVE_MONITOR_TIMING_STORE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/instruments.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The last kMaxTimings timings that ranks reported to this server, at most some
// 12 MiB. A timing replaces an earlier one of the same (role, step,
// micro-batch); when the store is full, a new one replaces the one whose first
// report is oldest. Thread-safe.
class TimingStore {
 public:
  static constexpr size_t kMaxTimings = 65536;
  // Limit of timings in one Add.
  static constexpr size_t kMaxReported = 4096;

  // `job_at`: the job as it is at a step (Scheduler::job_at); null: always
  // `job`.
  using JobAt = std::function<const v1::Job&(uint64_t step)>;
  explicit TimingStore(const v1::Job& job, JobAt job_at = nullptr);

  // Keeps all `timings`, or none of them. Errors: INVALID_ARGUMENT (no timing,
  // or more than kMaxReported; no such role, or a role of another split than
  // train; a step whose positions do not fit 64 bits; a micro-batch that no
  // step of the job can have, without a check that this step has it; a time
  // that is negative or not finite).
  absl::Status Add(absl::Span<const v1::StepTiming* const> timings);

  // The last timing of each rank that has reported, of at most kMaxRanks ranks,
  // ordered by module and rank.
  static constexpr size_t kMaxRanks = 1024;
  std::vector<v1::StepTiming> Latest() const;

  // The times of each phase over all ranks of `module`, of every timing ever
  // added, including timings that were replaced; null for a module that does
  // not exist.
  enum Phase { kTrain, kWait, kCopy, kExchange, kDecode, kPack, kPhases };
  const std::array<DurationHistogram, kPhases>* phases(v1::Module module) const;

  // The kept timings of steps from `from_step` on and of `module` (unspecified:
  // of all modules), in ascending order of (step, micro-batch, module, rank).
  std::vector<v1::StepTiming> Get(uint64_t from_step, v1::Module module) const;

 private:
  // (step, micro-batch, module, rank)
  using Key = std::tuple<uint64_t, uint32_t, int, uint32_t>;
  // Milliseconds; below 0: not reported.
  using Times = std::array<double, kPhases>;
  struct Kept {
    Key key;
    Times times = {};
  };

  static Times GetTimes(const v1::StepTiming& timing);
  static v1::StepTiming GetTiming(const Kept& kept);
  void Count(const Kept& kept);

  absl::Status Check(const v1::StepTiming& timing) const;

  const v1::Job job_;
  const JobAt job_at_;
  std::array<std::array<DurationHistogram, kPhases>, v1::Module_ARRAYSIZE>
      phases_;
  uint64_t grid_ = 1;  // LCM of the modules' dp sizes
  mutable Mutex mutex_;
  // (module, rank)
  std::map<std::pair<int, uint32_t>, Kept> latest_ ABSL_GUARDED_BY(mutex_);
  // A ring once it is full; oldest_ is then the index of its oldest entry.
  std::vector<Kept> ring_ ABSL_GUARDED_BY(mutex_);
  size_t oldest_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<Key, size_t> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_MONITOR_TIMING_STORE_H_
