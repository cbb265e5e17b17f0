#ifndef BALLAST_TRAINER_SHIM_HOST_PEER_ADDRESS_H_
#define BALLAST_TRAINER_SHIM_HOST_PEER_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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

// Where one rank listens for every other rank of its group: one address, and a
// port for each peer.
struct PeerPorts {
  // The most ranks whose ports fit into what a Rendezvous carries.
  static constexpr uint32_t kMaxRanks = 2000;

  uint64_t run = 0;             // drawn by rank 0 for this group
  std::string ip;               // text
  std::vector<uint16_t> ports;  // by peer; 0 for the rank itself

  // At most 4096 bytes for kMaxRanks. Errors: INVALID_ARGUMENT (not an IP
  // address, too many ranks).
  absl::StatusOr<std::string> Encode() const;
  // Errors: DATA_LOSS (`bytes` were not made by Encode for `ranks` ranks).
  static absl::StatusOr<PeerPorts> Decode(absl::string_view bytes,
                                          uint32_t ranks);
};

// The socket address of `ip`, an address as text, and `port`. Sets `bytes` to
// its length. Errors: INVALID_ARGUMENT.
absl::StatusOr<sockaddr_storage> SocketAddress(const std::string& ip,
                                               uint16_t port, int* bytes);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PEER_ADDRESS_H_
