#ifndef BALLAST_TRAINER_SHIM_HOST_PEER_PORTS_H_
#define BALLAST_TRAINER_SHIM_HOST_PEER_PORTS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

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

#endif  // BALLAST_TRAINER_SHIM_HOST_PEER_PORTS_H_
