#ifndef BALLAST_TRAINER_SHIM_HOST_GLOO_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_HOST_GLOO_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "trainer_shim/communicator.h"

namespace ballast {

struct GlooOptions {
  // The IP address of this machine at which peers connect (ExchangeAddress).
  std::string address = "127.0.0.1";
  // Longest wait of an exchange for the peers, which may themselves wait for
  // their servers.
  absl::Duration exchange_timeout = absl::Minutes(10);
  // A peer whose machine acknowledges nothing for this long is lost. Whole
  // seconds, at least 2.
  absl::Duration silent_after = absl::Seconds(30);

  // The bounds that fit a rank's: twice its patience with servers, and the time
  // after which it leaves a silent server.
  static GlooOptions For(const FailoverOptions& failover, std::string address);
};

// Creates a communicator for host memory whose ranks are processes, on one or
// more machines. They meet through a server (LoaderService.Rendezvous) and then
// connect to each other over TCP: n-1 connections and one thread a rank.
//
// `group` names the group, uniquely in the job, in at most 200 bytes. `run`
// names this start of the job and may be empty. Any server of the job may be
// used. Blocks until all ranks have called it and are connected, at most
// `timeout` for the first meeting and a minute for each further wait.
//
// Connections are neither encrypted nor authenticated, as NCCL's are not:
// whoever can reach the ports of a rank can end its exchange.
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
