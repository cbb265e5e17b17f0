#ifndef BALLAST_SERVER_SERVE_SERVICE_PEER_CHECK_H_
#define BALLAST_SERVER_SERVE_SERVICE_PEER_CHECK_H_

#include <grpcpp/channel.h>

#include <atomic>
#include <functional>
#include <map>
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
#include "common/channel_security.h"
#include "common/clock.h"
#include "proto/config.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// A separate connection to another server of the job, made at the first call.
// Answers have at most `most_bytes`; longer ones end with RESOURCE_EXHAUSTED.
// Errors: as ChannelCredentialsFor.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakePeerChannel(
    const std::string& address, const ChannelSecurity& security,
    int most_bytes = 4 << 20);

// Interface to the other servers of a job.
class PeerCaller {
 public:
  virtual ~PeerCaller() = default;

  // Calls LoaderService.Attach without a role or an expected fingerprint.
  // Blocks for at most two seconds. For one thread. Errors: CANCELLED; as the
  // call.
  virtual absl::StatusOr<v1::AttachResponse> Attach(
      const std::string& address) = 0;

  // Ends an Attach in progress and every later one. May be called from any
  // thread.
  virtual void Cancel() = 0;
};

// Makes calls over gRPC, secured by `security`.
std::unique_ptr<PeerCaller> MakeGrpcPeerCaller(PeerSecurity security);

// Checks that all servers of a job were started with the same configuration and
// index. A server of topology.meeting compares itself with the server named
// there before ranks may attach: with `direct` no rank of the module would meet
// another. Each server asks every other one when it starts, and from then on a
// few of them at a time, in turn: a peer that restarts with another
// configuration is found even if nobody calls this server. A server that finds
// a difference serves no rank, since it cannot know which of the two is wrong.
// It asks that peer again until the difference is gone, and then serves.

// The addresses of `topology.servers` except `own`, in order.
std::vector<std::string> PeerAddresses(const v1::Topology& topology,
                                       absl::string_view own);

// Compares a peer's answer to Attach with the fingerprint `own`. Returns true
// if they are equal; false if the answer says nothing (the peer is not there,
// drains, or is no loader server). Errors: FAILED_PRECONDITION (they differ),
// naming both addresses, both fingerprints and the first differing key.
absl::StatusOr<bool> ComparePeer(
    const v1::Fingerprint& own, absl::string_view own_address,
    const absl::StatusOr<v1::AttachResponse>& answer,
    absl::string_view peer_address);

// UNAVAILABLE: why a rank cannot attach to the server `own_address` before it
// has been compared with the server `meeting`.
absl::Status NotCompared(absl::string_view own_address,
                         absl::string_view meeting);

// The wait before round `round` (1, 2, …) of asking the silent peers; nullopt
// after enough rounds, some two minutes in all.
std::optional<absl::Duration> PeerRetryDelay(int round);

// The peers' answers so far. Decides whom to ask when, and whether ranks may be
// served. Thread-compatible.
class PeerVerdict {
 public:
  // The wait between rounds while a peer differs.
  static constexpr absl::Duration kDiffersDelay = absl::Seconds(5);
  // The wait between rounds once each peer is equal or was asked often enough,
  // and the number of peers that such a round asks. With P peers a server asks
  // each every P / 8 · 30 s, however large the job.
  static constexpr absl::Duration kWatchDelay = absl::Seconds(30);
  static constexpr size_t kWatchedARound = 8;

  explicit PeerVerdict(std::vector<std::string> peers)
      : peers_(std::move(peers)) {}

  // The peers to ask in this round: all that are not known to be equal, or the
  // next ones in turn.
  std::vector<std::string> ToAsk() const;
  // `compared` is ComparePeer's result for `peer`.
  void Note(const std::string& peer, const absl::StatusOr<bool>& compared);
  // Ends the round. Returns the wait before the next one. A peer that differs
  // is asked until it is equal or silent; one that has become silent, which may
  // be restarting, is asked as often as at the start.
  absl::Duration EndRound();

  // OK, or the error of the first peer, in order, that differs now.
  absl::Status status() const;
  // Silent peers, in order.
  std::vector<std::string> silent() const;

 private:
  const std::vector<std::string> peers_;
  // Result for each peer that has been compared: equal or different.
  std::map<std::string, absl::Status> compared_;
  int round_ = 0;
  bool watches_ = false;      // asks peers in turn
  size_t next_ = 0;           // in peers_, to be asked first if watches_
  bool fell_silent_ = false;  // in this round, a peer that had been compared
};

// Asks the peers, in its own thread. Thread-safe.
class PeerCheck {
 public:
  struct Self {
    v1::Fingerprint fingerprint;
    std::string address;
    // One of the peers, which is asked first and alone until it is equal.
    // Empty: none.
    std::string meeting;
  };

  // The thread calls `on_change` whenever the verdict has changed: with
  // ComparePeer's error, or with OK once no peer differs any more; also with OK
  // at the end of the first round, if no peer differs. If there is a `meeting`,
  // ranks wait for the first OK (NotCompared). Logs the peers that are silent
  // in the first round, in one line, and logs whenever all have become equal.
  // `clock` is not owned. Errors: RESOURCE_EXHAUSTED (no thread).
  static absl::StatusOr<std::unique_ptr<PeerCheck>> Start(
      Self self, std::vector<std::string> peers,
      std::unique_ptr<PeerCaller> caller, Clock* clock,
      std::function<void(absl::Status)> on_change);

  // Calls Stop().
  ~PeerCheck() { Stop(); }

  // Ends the check and waits for `on_change` if it is running. Must not be
  // called from `on_change`, nor from two threads at once.
  void Stop();

 private:
  PeerCheck(Self self, std::unique_ptr<PeerCaller> caller, Clock* clock,
            std::function<void(absl::Status)> on_change)
      : self_(std::move(self)),
        caller_(std::move(caller)),
        sleeper_(clock->NewSleeper()),
        on_change_(std::move(on_change)) {}
  void Run(std::vector<std::string> peers);
  // Returns once the meeting is equal, or false if the check stops.
  bool AwaitMeeting();
  // One round. Returns why the first silent peer could not be compared.
  absl::Status AskAll(PeerVerdict* verdict);

  const Self self_;
  const std::unique_ptr<PeerCaller> caller_;
  const std::unique_ptr<Sleeper> sleeper_;
  const std::function<void(absl::Status)> on_change_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_PEER_CHECK_H_
