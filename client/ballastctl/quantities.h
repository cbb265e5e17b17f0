#ifndef BALLAST_CLIENT_BALLASTCTL_QUANTITIES_H_
#define BALLAST_CLIENT_BALLASTCTL_QUANTITIES_H_

#include <cstddef>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/ballastctl/query_client.h"
#include "common/clock.h"
#include "common/instruments.h"
#include "proto/balance.pb.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// Numbers for people, at most eight columns wide.
std::string CountText(double count);      // "1.23 M"
std::string BytesText(double bytes);      // "12.5 MiB"
std::string SecondsText(double seconds);  // "3.1 ms"
std::string RatioText(double ratio);      // "1.070"; "-" for 0

// "ballast_images_total use=vision": the full name of a metric.
std::string MetricName(const v1::MetricFamily& family,
                       const v1::MetricFamily::Metric& metric);

// Converts a histogram message; an empty histogram if its bounds are not ours.
DurationHistogram::Snapshot GetSnapshot(
    const v1::MetricFamily::Histogram& histogram);

// Size of a view: at least one line and one column.
struct ViewSize {
  int lines = std::numeric_limits<int>::max();
  int columns = 80;  // those beyond 160 stay unused
};

// A server's text for a terminal, without characters
// that control the terminal. Thread-compatible.
class View {
 public:
  // Further lines are dropped.
  explicit View(ViewSize size = {});

  int left() const { return left_; }  // lines that still fit
  size_t width() const { return width_; }
  // Adds one line, cut off at the width. One byte per column: bytes beyond
  // ASCII become "?".
  void Add(absl::string_view line);
  // Adds text broken at spaces, further lines indented by `indent`. Longer
  // words, such as paths, stay whole and UTF-8 stays unchanged, so that they
  // can be copied.
  void AddWrapped(size_t indent, absl::string_view text);
  // "KEY          VALUE", wrapped.
  void AddField(absl::string_view key, absl::string_view value);

  std::string Take() && { return std::move(text_); }

 private:
  void Put(absl::string_view line);

  int left_;
  const size_t width_;
  std::string text_;
};

// Adds a titled list of clients, furthest behind first: at most `most` lines,
// then the number of the others. Adds nothing without clients.
void AddClients(const v1::GetStatusResponse& status, int most, View* view);

// "reads_fail data/a.tar for 3 min: ...".
std::string ProblemText(const v1::GetStatusResponse::Problem& problem);

// State of a server at one moment.
struct Snapshot {
  absl::Time at;
  v1::GetStatusResponse status;
  v1::GetStatsResponse stats;
  // Balance of training's current step; absent before the first.
  std::optional<v1::StepBalance> balance;
};

// Takes a snapshot. `ranks`: include the balance's columns by rank. Errors: as
// QueryClient.
absl::StatusOr<Snapshot> TakeSnapshot(QueryClient* client, Clock* clock,
                                      bool ranks);

// The changes of the running job that the server has, at least one: "1 of 2,
// from step 8000 on; number 2 begins at step 12000, in 380 steps". Pure.
std::string ChangesText(const v1::GetStatusResponse& status);

// Per second, between two snapshots.
struct Rates {
  double images = 0;          // decoded for vision or sent encoded
  double images_encoded = 0;  // sent encoded
  double read_bytes = 0;
  double sent_bytes = 0;
  double tokens = 0;
};

// The server's instruments that `status` and `top` show (docs/metrics.md); 0 if
// the server lacks one.
struct Figures {
  std::optional<Rates> rates;  // absent without an earlier snapshot
  double workers = 0;
  double workers_busy = 0;
  double samples_waiting = 0;
  double blocks_in_work = 0;
  double blocks_ready = 0;
  double blocks_reused = 0;
  double schedules_found = 0;
  double schedules_computed = 0;
  double memory_idle = 0;
  double streams_short_of_memory = 0;
};

// `before`: an earlier snapshot of the same server, or null. A count that has
// shrunk since, because the server restarted, has the rate 0. Pure.
Figures GetFigures(const Snapshot& now, const Snapshot* before);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_QUANTITIES_H_
