#ifndef BALLAST_SERVER_SERVE_MONITOR_STATE_HISTORY_H_
#define BALLAST_SERVER_SERVE_MONITOR_STATE_HISTORY_H_

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/metrics_service.pb.h"

namespace ballast {
// The figures of a server at one time.
struct HistoryPoint {
  // The columns, in this order. Counters are kept as they are, so that a rate
  // over any two points is exact.
  static constexpr std::array<const char*, 12> kColumns = {
      "step",          // furthest step of which a client has a block
      "images",        // decoded or passed through, since the start
      "tokens",        // since the start
      "sent_bytes",    // since the start
      "wait_seconds",  // time that ranks report to have waited, since the start
      "train_seconds",
      "memory_bytes",  // of blocks, in use
      "workers_busy",
      "spread_vision",  // slowest rank over the mean, as trained
      "spread_language",
      "bad_samples",
      "clients"};

  double seconds = 0;  // since 1970
  // NaN: the server has no such figure at that time.
  std::array<double, kColumns.size()> values = {};
};

// The points of the last hour, and every twelfth of the last day. Bounded:
// 2,160 points of 104 bytes. Thread-compatible.
class HistoryRing {
 public:
  // Between two calls of Add.
  static constexpr absl::Duration kInterval = absl::Seconds(5);
  static constexpr size_t kFine = 720;     // an hour
  static constexpr size_t kEach = 12;      // a minute
  static constexpr size_t kCoarse = 1440;  // a day

  // Adds a point, later than the points before it.
  void Add(const HistoryPoint& point);

  // At most `most` points of the last `range`, counted from the last point, in
  // ascending order: evenly thinned, always with the last. `most` is at
  // least 2.
  std::vector<HistoryPoint> Points(absl::Duration range, size_t most) const;

 private:
  std::deque<HistoryPoint> fine_;
  std::deque<HistoryPoint> coarse_;
  size_t added_ = 0;
};

// The point of a server's metrics at `seconds` since 1970. Pure.
HistoryPoint GetPoint(const std::vector<v1::MetricFamily>& families,
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

  // When the history began, in seconds since 1970.
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
v1::GetHistoryResponse MakeHistoryResponse(const std::string& name,
                                           const StateHistory& history,
                                           absl::Duration range, size_t most);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_MONITOR_STATE_HISTORY_H_
