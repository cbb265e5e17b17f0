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

// How a rank goes on when a server fails it.
struct FailoverOptions {
  // A server that failed is left alone for so long; doubled with each further
  // failure in a row, up to the most.
  absl::Duration first_backoff = absl::Milliseconds(500);
  absl::Duration max_backoff = absl::Seconds(10);
  // Each of these waits is shortened by a random share of up to this, so that
  // the ranks of a job do not all come back at once. 0 to 1.
  double jitter = 0.5;
  // Of that randomness: different for each rank.
  uint64_t seed = 0;
  // A rank that begins waits so long for the first server to answer. 0: it must
  // answer at once.
  absl::Duration start_patience = absl::ZeroDuration();
  // So long after the first failure, without anything from any server since,
  // the run ends.
  absl::Duration patience = absl::Minutes(5);
  // A server that may send and sends no byte for so long is hung.
  absl::Duration silent_after = absl::Seconds(30);
  // One that may send and has not completed the block after so long is slow.
  absl::Duration slow_after = absl::Minutes(2);
};

// OK, or INVALID_ARGUMENT naming the option that is out of its range.
absl::Status CheckFailoverOptions(const FailoverOptions& options);

// What a failure of one server says of the others.
enum class Fault {
  // The server is away, drains, hangs, is slow or busy: another goes on, and
  // this one may come back. UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED,
  // RESOURCE_EXHAUSTED.
  kPassing,
  // This server cannot do it, and will not be able to soon, though another
  // might: its disk, its build, or it is of another job or configuration.
  // DATA_LOSS, INTERNAL, UNKNOWN, FAILED_PRECONDITION.
  kLasting,
  // No server can: the request is wrong. All other codes.
  kFinal,
};
Fault FaultOf(const absl::Status& status);

// Which of a job's servers a rank uses, and when: any of them can serve any
// rank, so whoever fails is left for the next. Pure: time comes in, decisions
// go out. Thread-compatible.
//
//   A fails -> B at once; B fails -> A again, once its back-off is over
class Failover {
 public:
  // `servers`: at least one, in order of preference; named in messages.
  Failover(std::vector<std::string> servers, const FailoverOptions& options);

  // The server to use now.
  size_t server() const { return current_; }
  const std::string& name() const { return servers_[current_].name; }

  // server() gave what was asked for.
  void OnProgress();

  // server() failed with `why`. Moves on and answers how long to wait before
  // server() is to be asked: the server that may be asked soonest, and among
  // equals the next in order. Or the error to end with:
  //   `why` itself                  a fault that is final
  //   UNAVAILABLE, or `why`'s code  when all have failed since the last
  //     progress, each with a lasting fault or `patience` being over; names
  //     each server with its last cause
  absl::StatusOr<absl::Duration> OnFailure(absl::Time now,
                                           const absl::Status& why);

  // The limits of HangTimer for server(): doubled after each round in which no
  // server was quick enough, since then it is not the servers that are at fault
  // but the limit.
  absl::Duration silent_after() const;
  absl::Duration slow_after() const;

 private:
  struct Server {
    std::string name;
    int failures = 0;  // in a row
    absl::Time not_before = absl::InfinitePast();
    absl::Time failed_at;
    // OK: none since the last progress of any server.
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
  // When the first failed since the last progress.
  absl::Time failing_since_ = absl::InfiniteFuture();
  int hangs_ = 0;  // DEADLINE_EXCEEDED since the last progress
  uint64_t random_;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_FAILOVER_H_
