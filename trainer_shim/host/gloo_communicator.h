#ifndef BALLAST_TRAINER_SHIM_HOST_GLOO_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_HOST_GLOO_COMMUNICATOR_H_

#include <gloo/transport/context.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "common/mutex.h"
#include "trainer_shim/communicator.h"

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
// nothing for `silent_after`, idle or not. Whole seconds, at least 2.
void EndWhenSilent(int fd, absl::Duration silent_after);

// One rank's Gloo connections to all peers: the only code that calls Gloo. None
// of its exceptions leaves this class, and a closed connection raises no
// SIGPIPE. One thread calls Connect, then Exchange; Close may be called from
// any.
class GlooLink {
 public:
  // Listens at `address` for every peer. Errors: INVALID_ARGUMENT (not an
  // address of this machine), UNAVAILABLE (Gloo's own).
  static absl::StatusOr<std::unique_ptr<GlooLink>> Listen(
      const std::string& address, uint32_t rank, uint32_t size,
      absl::Duration connect_timeout, absl::Duration silent_after);
  // Leaves the group: bytes that were sent still arrive.
  ~GlooLink();

  // The ports at which this rank listens; `run` is 0.
  const PeerPorts& ports() const { return ports_; }

  // Connects to all peers. `peers[r]` are rank r's ports. Errors: UNAVAILABLE,
  // naming the peer.
  absl::Status Connect(const std::vector<PeerPorts>& peers);

  // Sends `headers` to the peers (its own is unused), and the slices once the
  // headers of all peers have come and fit. Errors: as CheckHeader;
  // UNAVAILABLE, naming the peer that is gone or has not come within
  // `timeout`; CANCELLED after Close. The caller then calls Close.
  absl::Status Exchange(absl::Span<const PeerHeader> headers,
                        absl::Span<const SendSlice> sends,
                        absl::Span<const ReceiveSlice> receives,
                        absl::Duration timeout);

  // Ends a running Exchange at once, then closes all connections, in up to 10
  // ms for each. Further calls do nothing.
  void Close();

 private:
  using Time = std::chrono::steady_clock::time_point;
  class Waiting;

  GlooLink(uint32_t rank, uint32_t size) : rank_(rank), size_(size) {}

  absl::Status Move(absl::Span<const PeerHeader> headers,
                    absl::Span<const SendSlice> sends,
                    absl::Span<const ReceiveSlice> receives, Time deadline);
  // Finds the sockets of the connections, which Gloo does not expose. A peer
  // whose machine is silent is then detected as lost, and errors name its rank.
  void Watch(const std::vector<PeerPorts>& peers);
  // Converts `error`, from Gloo, to a status.
  absl::Status StatusOf(const char* error, bool late) const;
  bool closed() const;

  const uint32_t rank_;
  const uint32_t size_;
  PeerPorts ports_;
  absl::Duration silent_after_;
  std::shared_ptr<gloo::transport::Context> pairs_;
  // A connection's remote address, as Gloo's errors name it -> rank.
  std::map<std::string, uint32_t> names_;
  std::vector<PeerHeader> came_;  // of the current exchange, by peer
  std::vector<bool> moves_;       // whether samples go to or come from a peer
  std::optional<uint32_t> posting_;  // the peer that a message is for
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The current exchange's; null between exchanges.
  gloo::transport::UnboundBuffer* waiting_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

struct GlooOptions {
  // The IP address of this machine at which peers connect (ExchangeAddress).
  std::string address = "127.0.0.1";
  // Longest wait of an exchange for the peers, which may themselves wait for
  // their servers.
  absl::Duration exchange_timeout = absl::Minutes(10);
  // A peer whose machine acknowledges nothing for this long is lost. Whole
  // seconds, at least 2.
  absl::Duration silent_after = absl::Seconds(30);

  // The limits that fit a rank's: twice its patience with servers, and the time
  // after which it leaves a silent server.
  static GlooOptions For(const FailoverOptions& failover, std::string address);
};

// Creates a communicator for host memory whose ranks are processes, on one or
// more machines. They meet through a server (LoaderService.Rendezvous), then
// connect to each other over TCP: n-1 connections and one thread a rank.
//
// `group` names the group, uniquely in the job, in at most 200 bytes. `run`
// names this start of the job and may be empty. Any server of the job may be
// used. Blocks until all ranks have called it and are connected, at most
// `timeout` for the first rendezvous and a minute for each further wait.
//
// Connections are neither encrypted nor authenticated, like NCCL's: anyone who
// can reach the ports of a rank can end its exchange.
//
// Errors of creation: as LoaderClient::Rendezvous; INVALID_ARGUMENT (a rank
// outside the group, more than PeerPorts::kMaxRanks ranks, an address that is
// not this machine's), DEADLINE_EXCEEDED (not all ranks came), UNAVAILABLE (a
// peer's address cannot be reached from here, or the peer left),
// FAILED_PRECONDITION (a stranger answers at a peer's port).
//
// AllToAllV: errors name this rank and the peer. They end this end of the
// group, so the peers' exchanges end with UNAVAILABLE, naming this rank.
// UNAVAILABLE: a peer left, died, was silent for `silent_after`, or did not
// come within `exchange_timeout`. The peers of a rank that calls Abort do not
// learn its reason. Allocates in proportion to the number of slices and peers.
absl::StatusOr<std::unique_ptr<Communicator>> MeetGlooCommunicator(
    LoaderClient* server, const std::string& group, uint32_t rank,
    uint32_t size, absl::Duration timeout, const GlooOptions& options,
    const std::string& run = "");

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_GLOO_COMMUNICATOR_H_
