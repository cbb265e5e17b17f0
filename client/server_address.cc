#include "client/server_address.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/net_address.h"

namespace ballast {

std::vector<std::string> SplitServers(absl::string_view list) {
  return absl::StrSplit(list, ',');
}

absl::Status CheckServerAddress(absl::string_view address) {
  const absl::StatusOr<NetAddress> parsed = ParseNetAddress(address);
  if (parsed.ok() && (parsed->is_unix() || parsed->port != 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("server address \"", address, "\": ",
                   parsed.ok() ? "wanted a port of 1 to 65535"
                               : std::string(parsed.status().message())));
}

}  // namespace ballast
