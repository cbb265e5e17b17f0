#ifndef BALLAST_SERVER_SERVICE_PEER_CHECK_H_
#define BALLAST_SERVER_SERVICE_PEER_CHECK_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "proto/config.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"
#include "server/service/peer_caller.h"

namespace ballast {

// Whether all servers of a job were started with the same configuration and
// index. Each asks every other one when it starts, so of two that differ at
// least the later one finds out. A server that finds a difference serves no
// rank until it is restarted: it cannot know which of the two is wrong.

// The addresses of `topology.servers` but `own`, in order.
std::vector<std::string> PeerAddresses(const v1::Topology& topology,
                                       absl::string_view own);

// What a peer's answer to Attach says: true, that it has the fingerprint `own`;
// false, nothing (it is not there, drains, or is no loader server). Errors:
// FAILED_PRECONDITION (it has another one), naming both addresses, both
// fingerprints and the first differing key.
absl::StatusOr<bool> ComparePeer(
    const v1::Fingerprint& own, absl::string_view own_address,
    const absl::StatusOr<v1::AttachResponse>& answer,
    absl::string_view peer_address);

// How long to wait before round `round` (1, 2, …) of asking those that have
// said nothing yet; nothing when that was enough. Some two minutes in all: a
// server that starts later asks in turn.
std::optional<absl::Duration> PeerRetryDelay(int round);

// Asks the peers, in a thread of its own. Thread-safe.
class PeerCheck {
 public:
  struct Self {
    v1::Fingerprint fingerprint;
    std::string address;
  };

  // `on_mismatch` is called once at most, from the thread, with ComparePeer's
  // error; then the check is over. Peers that say nothing in the first round
  // are logged, in one line. `clock` is not owned. Errors: RESOURCE_EXHAUSTED
  // (no thread).
  static absl::StatusOr<std::unique_ptr<PeerCheck>> Start(
      Self self, std::vector<std::string> peers,
      std::unique_ptr<PeerCaller> caller, Clock* clock,
      std::function<void(absl::Status)> on_mismatch);

  // Stop().
  ~PeerCheck() { Stop(); }

  // Ends the check and waits for `on_mismatch` if it is running. Not from
  // there; not from two threads at once.
  void Stop();

 private:
  PeerCheck(Self self, std::unique_ptr<PeerCaller> caller, Clock* clock,
            std::function<void(absl::Status)> on_mismatch)
      : self_(std::move(self)),
        caller_(std::move(caller)),
        sleeper_(clock->NewSleeper()),
        on_mismatch_(std::move(on_mismatch)) {}
  void Run(std::vector<std::string> peers);
  // Asks each once and answers those that said nothing.
  absl::StatusOr<std::vector<std::string>> AskAll(
      const std::vector<std::string>& peers, absl::Status* why);

  const Self self_;
  const std::unique_ptr<PeerCaller> caller_;
  const std::unique_ptr<Sleeper> sleeper_;
  const std::function<void(absl::Status)> on_mismatch_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_PEER_CHECK_H_
