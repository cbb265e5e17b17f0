#ifndef BALLAST_TRAINER_SHIM_HOST_GLOO_LINK_H_
#define BALLAST_TRAINER_SHIM_HOST_GLOO_LINK_H_

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
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/peer_address.h"

namespace ballast {

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

// What a rank tells each peer before the slices of an exchange, so that ranks
// which disagree fail instead of waiting or writing past a slice. Sent as it
// lies in memory: all ranks run on little-endian machines of one kind.
struct PeerHeader {
  static constexpr uint64_t kMagic = 0x31'68'63'78'65'6c'6c'62;  // "bllexch1"

  uint64_t magic = 0;   // 0: nothing has arrived
  uint64_t run = 0;     // drawn by rank 0 for this group
  uint64_t number = 0;  // of the exchange, from 0
  uint32_t from = 0;
  uint32_t to = 0;
  SliceSizes sends;     // from -> to
  SliceSizes receives;  // what `from` expects of `to`
};
static_assert(sizeof(PeerHeader) == 80);

// The headers of rank `from` for every rank of a group of `size`; its own is
// unused. The peers of all slices exist.
std::vector<PeerHeader> HeadersOf(uint64_t run, uint64_t number, uint32_t from,
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

// All TCP connections of this process, for a library that keeps its sockets to
// itself. Sockets that other threads open or close meanwhile may be missing or
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
  // Leaves: bytes that were sent still arrive.
  ~GlooLink();

  // Where this rank listens; `run` is 0.
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
  // Finds the sockets of the connections, which Gloo keeps to itself: a peer
  // whose machine is silent is then lost, and errors name their rank.
  void Watch(const std::vector<PeerPorts>& peers);
  // `error`, of Gloo, as a status.
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
  // Of the current exchange; null between exchanges.
  gloo::transport::UnboundBuffer* waiting_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_GLOO_LINK_H_
