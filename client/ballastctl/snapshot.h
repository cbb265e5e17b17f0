#ifndef BALLAST_CLIENT_BALLASTCTL_SNAPSHOT_H_
#define BALLAST_CLIENT_BALLASTCTL_SNAPSHOT_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/ballastctl/metrics_client.h"
#include "common/clock.h"
#include "proto/balance.pb.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// State of a server at one moment.
struct Snapshot {
  absl::Time at;
  v1::GetStatusResponse status;
  v1::GetStatsResponse stats;
  // Balance of training's current step; absent before the first.
  std::optional<v1::StepBalance> balance;
};

// Takes a snapshot. `ranks`: include the balance's columns by rank. Errors: as
// MetricsClient.
absl::StatusOr<Snapshot> TakeSnapshot(MetricsClient* client, Clock* clock,
                                      bool ranks);

// The server's instruments that `status` and `top` show (docs/metrics.md); 0 if
// the server lacks one.
struct Figures {
  // Per second, between two snapshots.
  struct Rates {
    double images = 0;          // decoded for vision or sent encoded
    double images_encoded = 0;  // sent encoded
    double read_bytes = 0;
    double sent_bytes = 0;
    double tokens = 0;
  };
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
Figures FiguresOf(const Snapshot& now, const Snapshot* before);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_SNAPSHOT_H_
