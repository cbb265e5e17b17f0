#ifndef BALLAST_TRAINER_SHIM_HOST_GLOO_PEERS_H_
#define BALLAST_TRAINER_SHIM_HOST_GLOO_PEERS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "trainer_shim/communicator.h"

// What the ranks of a group over Gloo exchange before bytes move: addresses,
// ports and headers. No Gloo.

namespace ballast {

// This machine's IP address, as text, at which a rank exchanges with ranks on
// other nodes.
//
// `interface` names a network interface or is one of the machine's addresses.
// Empty: the address from which this machine reaches the first of `servers`
// that other machines can reach. Other nodes then reach this machine at the
// same address. If only this machine reaches the servers (Unix sockets,
// localhost), 127.0.0.1: all ranks run here.
//
// Sends nothing. May resolve a host name. Errors: INVALID_ARGUMENT (no such
// interface, or it has no address), UNAVAILABLE (the server's name is not
// known, or there is no route to it).
absl::StatusOr<std::string> ExchangeAddress(
    const std::vector<std::string>& servers, const std::string& interface);

// The addresses at which one rank listens for every other rank of its group:
// one IP address, and a port for each peer.
struct PeerPorts {
  // Largest number of ranks whose ports fit into the bytes that a Rendezvous
  // carries.
  static constexpr uint32_t kMaxRanks = 2000;

  uint64_t run = 0;             // chosen by rank 0 for this group
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

// The slices between two ranks in one direction. Empty slices do not count.
struct SliceSizes {
  uint64_t slices = 0;
  uint64_t bytes = 0;
  uint64_t hash = 0;  // of the lengths in order

  void Add(uint64_t slice_bytes);
  friend bool operator==(const SliceSizes& a, const SliceSizes& b) {
    return a.slices == b.slices && a.bytes == b.bytes && a.hash == b.hash;
  }
};

// The header that a rank sends to each peer before the slices of an exchange,
// so that ranks which disagree fail instead of waiting or writing past a slice.
// Sent as it is in memory: all ranks run on little-endian machines of one kind.
struct PeerHeader {
  static constexpr uint64_t kMagic = 0x31'68'63'78'65'6c'6c'62;  // "bllexch1"

  uint64_t magic = 0;   // 0: nothing has arrived
  uint64_t run = 0;     // chosen by rank 0 for this group
  uint64_t number = 0;  // of the exchange, from 0
  uint32_t from = 0;
  uint32_t to = 0;
  SliceSizes sends;     // from -> to
  SliceSizes receives;  // what `from` expects from `to`
};
static_assert(sizeof(PeerHeader) == 80);

// The headers of rank `from` for every rank of a group of `size`; its own is
// unused. The peers of all slices exist.
std::vector<PeerHeader> GetHeaders(uint64_t run, uint64_t number, uint32_t from,
                                   uint32_t size,
                                   absl::Span<const SendSlice> sends,
                                   absl::Span<const ReceiveSlice> receives);

// Whether `got`, from the connection to a peer, fits `sent`, which went to that
// peer. Errors: FAILED_PRECONDITION (the other side is not that rank of this
// run), INVALID_ARGUMENT (the two are at different exchanges, or lengths or
// counts differ; names both ranks).
absl::Status CheckHeader(const PeerHeader& got, const PeerHeader& sent);

// One end of a TCP connection.
struct TcpEnd {
  std::string ip;  // text
  uint16_t port = 0;

  friend bool operator==(const TcpEnd& a, const TcpEnd& b) {
    return a.ip == b.ip && a.port == b.port;
  }
};

// A connected socket of this process.
struct TcpConnection {
  int fd = -1;
  TcpEnd own;
  TcpEnd peer;
  sockaddr_storage peer_address = {};
};

// All TCP connections of this process, for a library that does not expose its
// sockets. Sockets that other threads open or close meanwhile may be missing or
// gone.
std::vector<TcpConnection> TcpConnections();

// Lets the kernel end the connection once the peer's machine has acknowledged
// nothing for `silent_after`, idle or not, or its process has taken nothing of
// what waits for as long. Whole seconds, at least 10: with less a busy machine
// is taken for a lost one.
void EndWhenSilent(int fd, absl::Duration silent_after);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_GLOO_PEERS_H_
