#ifndef BALLAST_CLIENT_SERVER_ADDRESS_H_
#define BALLAST_CLIENT_SERVER_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Checks that clients can connect to an address of that form: as
// ParseNetAddress (common/net_address.h) reads it, with a port above 0. Does not
// connect. Errors: INVALID_ARGUMENT, naming the address and what was wanted.
absl::Status CheckServerAddress(absl::string_view address);

// Splits "A,B,C" into addresses without checking them: at least one, possibly
// empty.
std::vector<std::string> SplitServers(absl::string_view list);

}  // namespace ballast

#endif  // BALLAST_CLIENT_SERVER_ADDRESS_H_
