#include "client/ballastctl/server_option.h"

#include <utility>

#include "client/server_address.h"
#include "common/status_macros.h"

namespace ballast {

absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> ClientsOf(
    const ServerOption& option) {
  BALLAST_ASSIGN_OR_RETURN(const ChannelSecurity security,
                           LoadChannelSecurity(option.security));
  std::vector<std::unique_ptr<LoaderClient>> clients;
  for (const std::string& address : SplitServers(option.addresses)) {
    clients.push_back(LoaderClient::CreateSecure(address, security));
  }
  return clients;
}

absl::StatusOr<std::unique_ptr<LoaderClient>> ClientOf(
    const ServerOption& option) {
  BALLAST_ASSIGN_OR_RETURN(auto clients, ClientsOf(option));
  return std::move(clients[0]);
}

absl::StatusOr<std::unique_ptr<MetricsClient>> MetricsClientOf(
    const ServerOption& option) {
  BALLAST_ASSIGN_OR_RETURN(const ChannelSecurity security,
                           LoadChannelSecurity(option.security));
  return std::make_unique<MetricsClient>(SplitServers(option.addresses)[0],
                                         security);
}

absl::StatusOr<std::unique_ptr<OrderClient>> OrderClientOf(
    const ServerOption& option) {
  BALLAST_ASSIGN_OR_RETURN(const ChannelSecurity security,
                           LoadChannelSecurity(option.security));
  return std::make_unique<OrderClient>(SplitServers(option.addresses)[0],
                                       security);
}

}  // namespace ballast
