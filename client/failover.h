#ifndef BALLAST_CLIENT_FAILOVER_H_
#define BALLAST_CLIENT_FAILOVER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ballast {

// A rank's reaction to a failed server.
struct FailoverOptions {
  // Pause before a failed server is asked again; doubled with each consecutive
  // failure, up to the maximum.
  absl::Duration first_backoff = absl::Milliseconds(500);
  absl::Duration max_backoff = absl::Seconds(10);
  // Largest share by which each pause is randomly shortened, so that the ranks
  // of a job do not all return at once. 0 to 1.
  double jitter = 0.5;
  // Seed of that randomness: different for each rank.
  uint64_t seed = 0;
  // Time that a starting rank waits for the first server to answer, so that
  // servers and ranks may start in any order. 0: a server must answer at once.
  absl::Duration start_patience = absl::Minutes(1);
  // The run ends this long after the first failure if no server has delivered
  // anything since.
  absl::Duration patience = absl::Minutes(5);
  // A server that may send and sends no byte for this long is hung.
  absl::Duration silent_after = absl::Seconds(30);
  // A server that may send and has not completed a block after this long is
  // slow.
  absl::Duration slow_after = absl::Minutes(2);
};

// OK, or INVALID_ARGUMENT naming the option that is out of range.
absl::Status CheckFailoverOptions(const FailoverOptions& options);

// Kinds of failures, by what they mean for the other servers.
enum class Fault {
  // The server is away, drains, hangs, is slow or busy: another takes over, and
  // this one may come back. UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED,
  // RESOURCE_EXHAUSTED.
  kPassing,
  // This server fails and will go on failing, but another may succeed: its disk
  // or build is at fault, or it belongs to another job or configuration.
  // DATA_LOSS, INTERNAL, UNKNOWN, FAILED_PRECONDITION.
  kLasting,
  // No server can succeed: the request is wrong. All other codes.
  kFinal,
};
Fault GetFault(const absl::Status& status);

// Decides which of a job's servers a rank uses, and when. Any server can serve
// any rank, so a rank moves from a failed server to the next. Pure: takes the
// time as an argument and returns decisions. Thread-compatible.
//
//   A fails -> B at once; B fails -> A again, once its back-off is over
class Failover {
 public:
  // `servers`: at least one, in order of preference; named in messages.
  Failover(std::vector<std::string> servers, const FailoverOptions& options);

  // The server to use now.
  size_t server() const { return current_; }
  const std::string& name() const { return servers_[current_].name; }

  // Call when server() has delivered.
  void OnProgress();

  // Call when server() has failed with `why`. Moves to the server that may be
  // asked soonest, among equals the next in order, and returns how long to wait
  // before asking it. Or returns the error to end with:
  //   `why` itself                  a fault that is final
  //   UNAVAILABLE, or `why`'s code  when all have failed since the last
  //     progress, each with a lasting fault, or `patience` is over; names each
  //     server with its last cause
  absl::StatusOr<absl::Duration> OnFailure(absl::Time now,
                                           const absl::Status& why);

  // HangTimer's limits for server(). Doubled after each round in which no
  // server was fast enough: then the limit is too short, not the servers too
  // slow.
  absl::Duration silent_after() const;
  absl::Duration slow_after() const;

 private:
  struct Server {
    std::string name;
    int failures = 0;  // in a row
    absl::Time not_before = absl::InfinitePast();
    absl::Time failed_at;
    // The last failure; OK: none since any server's last progress.
    absl::Status last;
  };

  absl::Duration Backoff(int failures);
  double Random();  // [0, 1)
  bool AllAreOut(absl::Time now) const;
  absl::Status Exhausted(absl::Time now, const absl::Status& why) const;
  size_t Soonest(absl::Time now) const;
  int HangDoublings() const;

  const FailoverOptions options_;
  std::vector<Server> servers_;
  size_t current_ = 0;
  // The first failure since the last progress.
  absl::Time failing_since_ = absl::InfiniteFuture();
  int hangs_ = 0;  // DEADLINE_EXCEEDED since the last progress
  uint64_t random_;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_FAILOVER_H_
