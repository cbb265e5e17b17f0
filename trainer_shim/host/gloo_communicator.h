#ifndef BALLAST_TRAINER_SHIM_HOST_GLOO_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_HOST_GLOO_COMMUNICATOR_H_

#include <gloo/transport/context.h>

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
#include "client/failover.h"
#include "client/loader_client.h"
#include "common/mutex.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/gloo_peers.h"

namespace ballast {

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
  absl::Status ToStatus(const char* error, bool late) const;
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
