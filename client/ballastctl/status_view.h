#ifndef BALLAST_CLIENT_BALLASTCTL_STATUS_VIEW_H_
#define BALLAST_CLIENT_BALLASTCTL_STATUS_VIEW_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/ballastctl/quantities.h"
#include "client/ballastctl/query_client.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/command_line.h"
#include "proto/loader_service.pb.h"
#include "proto/metrics_service.pb.h"
#include "proto/revision_service.pb.h"

namespace ballast {

// `status`: the state of a server and its job.
void AddStatus(CommandLine* line, std::shared_ptr<const ServerOption> server);

struct StatusOptions {
  // Time between the two snapshots that give the rates; 0: one, without rates.
  absl::Duration interval = absl::Seconds(1);
  bool json = false;
};

// Writes the state to `out`, as StatusText or StatusJson. Blocks for the
// interval. Errors: as LoaderClient::Attach, GetStatus, GetStats and
// GetBalance. A server without GetBalance is not an error.
absl::Status PrintStatus(LoaderClient* client, QueryClient* metrics,
                         const StatusOptions& options, Clock* clock,
                         std::ostream* out);

// Labels and texts of `ballastctl status` for what was read of videos; an empty
// label continues the field before. Pure.
std::vector<std::pair<std::string, std::string>> VideoFields(
    const v1::GetStatusResponse::Videos& videos);

// The same for `--json`: its key "videos". Pure.
nlohmann::ordered_json VideosJson(const v1::GetStatusResponse::Videos& videos);

// State of a server and its job.
struct ServerReport {
  std::string address;  // the server's, as given
  bool serving = false;
  v1::AttachResponse attach;
  // Absent for a server without RevisionService.
  std::optional<v1::GetRevisionsResponse> revisions;
  // Absent for a server without MetricsService.
  std::optional<Snapshot> now;
  std::optional<Snapshot> before;  // start of the interval of the rates
};

// Text of at most 80 columns, except for longer words such as paths. Shortened
// lists end with the number of entries left out. Pure.
std::string StatusText(const ServerReport& report);

// One line of JSON with everything; keys: `status --help`. Pure.
std::string StatusJson(const ServerReport& report);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_STATUS_VIEW_H_
