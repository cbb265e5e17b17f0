#ifndef BALLAST_CLIENT_BALLASTCTL_SNAPSHOT_H_
#define BALLAST_CLIENT_BALLASTCTL_SNAPSHOT_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "proto/balance.pb.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// A server at one moment.
struct Snapshot {
  absl::Time at;
  v1::GetStatusResponse status;
  v1::GetStatsResponse stats;
  // Of the step that training is at; nothing before the first.
  std::optional<v1::StepBalance> balance;
};

// `ranks`: with the balance's columns by rank. Errors: those of LoaderClient.
absl::StatusOr<Snapshot> TakeSnapshot(LoaderClient* client, Clock* clock,
                                      bool ranks);

// What `status` and `top` pick out of a server's instruments
// (docs/metrics.md); what a server does not tell is 0.
struct Figures {
  // A second, between two looks.
  struct Rates {
    double images = 0;
    double read_bytes = 0;
    double sent_bytes = 0;
    double tokens = 0;
  };
  std::optional<Rates> rates;  // nothing without a look before
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

// `before`: an earlier look at the same server, or null. What has shrunk since,
// for the server began anew, counts as 0 a second. Pure.
Figures FiguresOf(const Snapshot& now, const Snapshot* before);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_SNAPSHOT_H_
