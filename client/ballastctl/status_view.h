#ifndef BALLAST_CLIENT_BALLASTCTL_STATUS_VIEW_H_
#define BALLAST_CLIENT_BALLASTCTL_STATUS_VIEW_H_

#include <optional>
#include <string>

#include "client/ballastctl/snapshot.h"
#include "proto/loader_service.pb.h"

namespace ballast {

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
