#ifndef BALLAST_CLIENT_BALLASTCTL_STATUS_VIEW_H_
#define BALLAST_CLIENT_BALLASTCTL_STATUS_VIEW_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "client/ballastctl/snapshot.h"
#include "proto/loader_service.pb.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

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
