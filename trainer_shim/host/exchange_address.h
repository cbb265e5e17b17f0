#ifndef BALLAST_TRAINER_SHIM_HOST_EXCHANGE_ADDRESS_H_
#define BALLAST_TRAINER_SHIM_HOST_EXCHANGE_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ballast {

// This machine's IP address, as text, at which a rank exchanges with ranks on
// other nodes.
//
// `interface` names a network interface or is one of the machine's addresses.
// Empty: the address from which this machine reaches the first of `servers`
// that other machines can reach, which is then how other nodes reach this one.
// If only this machine reaches the servers (Unix sockets, localhost),
// 127.0.0.1: all ranks run here.
//
// Sends nothing. May resolve a host name. Errors: INVALID_ARGUMENT (no such
// interface, or it has no address), UNAVAILABLE (the server's name is not
// known, or there is no route to it).
absl::StatusOr<std::string> ExchangeAddress(
    const std::vector<std::string>& servers, const std::string& interface);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_EXCHANGE_ADDRESS_H_
