#ifndef BALLAST_CLIENT_SPREAD_SERVERS_H_
#define BALLAST_CLIENT_SPREAD_SERVERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/failover.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/job.pb.h"

namespace ballast {

// Time between two looks for new servers.
inline constexpr absl::Duration kListPeriod = absl::Seconds(3);

// The servers that a stream may be spread over. The stream uses the first few
// that serve, in its role's order of preference (proto/schedule/spread.h), so a
// rank talks to a few of thousands. Holds the workers of each server in use,
// and when a server that failed may be asked again. A thread asks preferred
// servers that do not serve, and lists new servers. Thread-safe.
class SpreadServers {
 public:
  struct Options {
    v1::Role role;    // whose stream it is
    size_t most = 1;  // servers that it uses
    // Those known at the start, at least one.
    std::vector<std::string> names;
    // Asks a server whether it serves the job. Returns its weight: the workers
    // that it has. Called on threads of this object, for preferred servers at
    // the start and for those that are away or new. Blocks for 10 s at most.
    std::function<absl::StatusOr<uint32_t>(size_t server)> ask;
    // Returns the names of all known servers: first `names`, then servers found
    // later, the oldest first. Called every kListPeriod; may block. Null: no
    // server is found later.
    std::function<std::vector<std::string>()> list;
    FailoverOptions failover;
    Clock* clock;  // outlives this object
  };
  // Largest weight of a server (proto/schedule/spread.h).
  static constexpr uint32_t kMaxWeight = 65536;

  explicit SpreadServers(Options options);
  ~SpreadServers();
  absl::Status Start();

  struct Serving {
    size_t server = 0;
    std::string name;
    uint32_t weight = 1;
  };
  // Those to use, by number. Empty until the first have been asked.
  std::vector<Serving> serving() const;
  // Whether these have changed since the last call.
  bool TakeNews();
  // Makes the next TakeNews true.
  void AddNews();

  const std::string& rank() const { return rank_; }
  std::string name(size_t server) const;

  // A block of the server has arrived.
  void NoteProgress(size_t server);
  // It has failed at `where`: it serves no more until it has been asked again.
  void NoteFailure(size_t server, const absl::Status& why,
                   const std::string& where);

  // Waits for news. Errors: CANCELLED; once no server can go on at `where`, as
  // Failover::OnFailure.
  absl::Status AwaitNews(const std::string& where);
  // Ends AwaitNews, now and later.
  void Cancel();

 private:
  struct Server {
    std::string name;
    uint32_t weight = 1;
    bool well = false;  // serves
    int failures = 0;   // in a row
    absl::Time not_before = absl::InfinitePast();
    absl::Status last;  // the last failure; OK: none since any progress
  };

  void Look();
  // Asks those that are preferred to the ones in use and may be asked. False:
  // there were none.
  bool AskPreferred();
  std::vector<size_t> Due() const;
  void Prefer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteAnswer(size_t server, const absl::StatusOr<uint32_t>& answer);
  void List();
  absl::Status Exhausted(const std::string& where) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration Backoff(const Server& server)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::string rank_;  // for the log
  const std::unique_ptr<Sleeper> sleeper_;
  const std::unique_ptr<Sleeper> look_sleeper_;
  mutable Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool news_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Server> servers_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> order_ ABSL_GUARDED_BY(mutex_);  // of preference
  absl::Time failing_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  uint64_t random_ ABSL_GUARDED_BY(mutex_);
  std::thread looks_;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_SPREAD_SERVERS_H_
