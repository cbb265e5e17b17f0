#ifndef BALLAST_CLIENT_BALLASTCTL_SERVER_OPTION_H_
#define BALLAST_CLIENT_BALLASTCTL_SERVER_OPTION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/ballastctl/metrics_client.h"
#include "client/ballastctl/order_client.h"
#include "client/loader_client.h"
#include "common/channel_security.h"

namespace ballast {

// The servers that a command asks, and the files that secure the connection.
struct ServerOption {
  std::string addresses;  // separated by commas
  SecurityFiles security;
};

// One client for each address; at least one. Errors: as LoadChannelSecurity.
absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> ClientsOf(
    const ServerOption& option);
// The clients of the first address.
absl::StatusOr<std::unique_ptr<LoaderClient>> ClientOf(
    const ServerOption& option);
absl::StatusOr<std::unique_ptr<MetricsClient>> MetricsClientOf(
    const ServerOption& option);
absl::StatusOr<std::unique_ptr<OrderClient>> OrderClientOf(
    const ServerOption& option);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_SERVER_OPTION_H_
