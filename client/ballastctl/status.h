#ifndef BALLAST_CLIENT_BALLASTCTL_STATUS_H_
#define BALLAST_CLIENT_BALLASTCTL_STATUS_H_

#include <memory>
#include <ostream>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/ballastctl/server_option.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/command_line.h"

namespace ballast {

// `status`: the state of a server and its job.
void AddStatus(CommandLine* line, std::shared_ptr<const ServerOption> server);

struct StatusOptions {
  // Time between the two snapshots that give the rates; 0: one, without rates.
  absl::Duration interval = absl::Seconds(1);
  bool json = false;
};

// Writes the state to `out` (status_view.h). Blocks for the interval. Errors:
// as LoaderClient::Attach, GetStatus, GetStats and GetBalance. A server without
// GetBalance is not an error.
absl::Status PrintStatus(LoaderClient* client, MetricsClient* metrics,
                         const StatusOptions& options, Clock* clock,
                         std::ostream* out);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_STATUS_H_
