#ifndef BALLAST_CLIENT_SERVER_ADDRESS_H_
#define BALLAST_CLIENT_SERVER_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Checks that `address` has a form that clients can connect to: valid for
// ParseNetAddress (common/net_address.h), with a port above 0. Does not
// connect. Errors: INVALID_ARGUMENT, naming the address and the form wanted.
absl::Status CheckServerAddress(absl::string_view address);

// Splits "A,B,C" into addresses without checking them: at least one, possibly
// empty.
std::vector<std::string> SplitServers(absl::string_view list);

}  // namespace ballast

#endif  // BALLAST_CLIENT_SERVER_ADDRESS_H_
