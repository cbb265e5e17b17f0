#ifndef BALLAST_CLIENT_BALLASTCTL_STATUS_VIEW_H_
#define BALLAST_CLIENT_BALLASTCTL_STATUS_VIEW_H_

#include <optional>
#include <string>

#include "client/ballastctl/snapshot.h"
#include "proto/loader_service.pb.h"

namespace ballast {

// What a server says of itself and its job.
struct ServerReport {
  std::string address;  // where it was asked
  bool serving = false;
  v1::AttachResponse attach;
  // Nothing from a server that does not know MetricsService.
  std::optional<Snapshot> now;
  std::optional<Snapshot> before;  // what rates are since
};

// For people: lines of at most 80 columns but for words, such as paths, that
// are longer. Lists end with how many more there are. Pure.
std::string StatusText(const ServerReport& report);

// One line of JSON with everything; the keys stand in the help of `status`.
// Pure.
std::string StatusJson(const ServerReport& report);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_STATUS_VIEW_H_
