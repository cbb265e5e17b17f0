#ifndef BALLAST_SERVER_MONITOR_STATE_HISTORY_H_
#define BALLAST_SERVER_MONITOR_STATE_HISTORY_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/ticker.h"
#include "proto/metrics_service.pb.h"
#include "server/monitor/history_ring.h"

namespace ballast {

// The point of a server's metrics at `seconds` since 1970. Pure.
HistoryPoint PointOf(const std::vector<v1::MetricFamily>& families,
                     double seconds);

// Reads a server's metrics every HistoryRing::kInterval, in its own thread, and
// keeps a day of them in memory. Thread-safe.
class StateHistory {
 public:
  using Metrics = std::function<std::vector<v1::MetricFamily>()>;

  // `metrics` is called until this is destroyed. `start` is the time now.
  // `clock` is not owned and outlives this. Errors: RESOURCE_EXHAUSTED (no
  // thread).
  static absl::StatusOr<std::unique_ptr<StateHistory>> Start(Metrics metrics,
                                                             absl::Time start,
                                                             Clock* clock);

  // When it began, in seconds since 1970.
  double start_seconds() const { return start_seconds_; }

  // As HistoryRing::Points.
  std::vector<HistoryPoint> Points(absl::Duration range, size_t most) const;

 private:
  StateHistory(Metrics metrics, absl::Time start, Clock* clock);
  void Look();

  const Metrics metrics_;
  const double start_seconds_;
  Clock* const clock_;
  const absl::Time start_;  // by clock_
  mutable Mutex mutex_;
  HistoryRing ring_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Ticker> ticker_;  // last: its thread uses all the others
};

// The figures of the server `name` over the last `range`, at most `most`
// points.
v1::GetHistoryResponse HistoryOf(const std::string& name,
                                 const StateHistory& history,
                                 absl::Duration range, size_t most);

}  // namespace ballast

#endif  // BALLAST_SERVER_MONITOR_STATE_HISTORY_H_
