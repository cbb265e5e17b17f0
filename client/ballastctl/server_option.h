#ifndef BALLAST_CLIENT_BALLASTCTL_SERVER_OPTION_H_
#define BALLAST_CLIENT_BALLASTCTL_SERVER_OPTION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/loader_client.h"
#include "common/channel_security.h"

namespace ballast {

// Which servers a command asks, and how it shows who it is.
struct ServerOption {
  std::string addresses;  // with commas between
  SecurityFiles security;
};

// A client of each address: at least one. Errors: those of
// LoadChannelSecurity.
absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> ClientsOf(
    const ServerOption& option);
// Of the first.
absl::StatusOr<std::unique_ptr<LoaderClient>> ClientOf(
    const ServerOption& option);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_SERVER_OPTION_H_
