#ifndef BALLAST_TRAINER_SHIM_BALLAST_RANK_REPORT_H_
#define BALLAST_TRAINER_SHIM_BALLAST_RANK_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "trainer_shim/ballast_rank/world.h"
#include "trainer_shim/totals.h"

namespace ballast {

// Summarises a run for people. Thread-safe.
class Report {
 public:
  // `clock` outlives it.
  explicit Report(const std::vector<v1::Role>& roles,
                  Clock* clock = Clock::Real());

  void Add(const RankBatch& batch);

  // A table with one row per rank: total cost without and with balancing (from
  // the schedule), samples, images, bytes read and bytes moved to other ranks.
  // Below it: for each module, the heaviest rank's load over the mean; the
  // throughput over `elapsed`; and the throughput and the time of Next over the
  // later half of the batches, which excludes connecting and batches prepared
  // in advance; and, if images travelled encoded, what decoded them and how
  // long it took. Ends in a line break.
  std::string ToString(absl::Duration elapsed) const;

 private:
  struct Row {
    v1::Role role;
    double before = 0;
    double after = 0;
    PackedTotals totals;
    uint64_t bytes_read = 0;
    uint64_t bytes_moved = 0;
    JpegEngineCounts decoded;  // so far
  };
  std::string Decoding() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Pace() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Sums over micro-batches, for all of the module's ranks, in this process or
  // another.
  struct Straggling {
    double most_before = 0;
    double most_after = 0;
    double mean = 0;
  };

  Clock* const clock_;
  mutable Mutex mutex_;
  struct Arrival {
    absl::Time at;
    uint64_t images = 0;  // 0 except in the first rank's module
    uint64_t bytes = 0;
    absl::Duration next;
  };
  std::vector<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);
  std::vector<Row> rows_ ABSL_GUARDED_BY(mutex_);
  std::map<v1::Module, Straggling> straggling_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BALLAST_RANK_REPORT_H_
