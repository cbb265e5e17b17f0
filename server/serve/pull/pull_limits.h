#ifndef BALLAST_SERVER_SERVE_PULL_PULL_LIMITS_H_
#define BALLAST_SERVER_SERVE_PULL_PULL_LIMITS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace ballast {

// Counts open Pulls and bounds them. gRPC bounds the calls of one connection
// but not the connections. Pulls cost a server memory and work, so each counts
// from its start. Thread-safe.
//
// A Pull is silent until its first message, which its client sends at once.
// Silent Pulls give way to newer ones, so a client that opens Pulls and sends
// nothing locks nobody out. Pulls that have spoken belong to a role, and the
// loader bounds their number for each role (Loader::OpenStream).
class PullLimits {
 public:
  struct Settings {
    uint32_t most = 65'536;         // serve.max_streams
    uint32_t most_a_client = 4096;  // serve.max_streams_per_client
    uint32_t most_silent = 1024;    // of all clients
    // Time limit of the last write of a Pull that has ended. Infinite: no
    // limit, and no gRPC timer.
    absl::Duration last_write = absl::Seconds(5);
  };

  explicit PullLimits(const Settings& settings) : settings_(settings) {}

  // Counts one more Pull of `client` until End, and returns its number. If too
  // many Pulls are silent, ends the oldest of them with ABORTED by its `end`.
  // `end` must not block and runs with a lock held; it may run until Spoke or
  // End. Errors: RESOURCE_EXHAUSTED, naming the setting.
  using EndCall = std::function<void(const absl::Status&)>;
  absl::StatusOr<uint64_t> Begin(const std::string& client, EndCall end);
  // Records that the Pull is not silent any more. Once it returns, `end` is not
  // called.
  void Spoke(uint64_t pull);
  void End(const std::string& client, uint64_t pull);

  absl::Duration last_write() const { return settings_.last_write; }

 private:
  const Settings settings_;
  Mutex mutex_;
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> by_client_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, EndCall> silent_ ABSL_GUARDED_BY(mutex_);  // by number
};

// The name under which a peer is counted: its address without the port. `peer`
// is as named by gRPC ("ipv4:10.0.0.1:4711"). All peers over Unix sockets are
// one client.
std::string GetClient(absl::string_view peer);

// The calls that a drain waits for. gRPC's own Shutdown also waits for idle
// connections, which a client that nobody polls leaves open. Thread-safe.
class CallCount {
 public:
  void Begin() {
    MutexLock lock(&mutex_);
    ++calls_;
  }
  void End() {
    MutexLock lock(&mutex_);
    if (--calls_ == 0) none_.NotifyAll();
  }

  // Blocks until no call is open, or until `deadline`.
  void AwaitNone(absl::Time deadline) {
    MutexLock lock(&mutex_);
    while (calls_ != 0) {
      // An infinite wait does not fit the clock that CondVar uses.
      const absl::Duration left =
          std::min(deadline - absl::Now(), absl::Hours(1));
      if (left <= absl::ZeroDuration()) return;
      none_.WaitFor(&mutex_, absl::ToChronoNanoseconds(left));
    }
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The reason why a server serves no rank, if any. Thread-safe; status() takes
// no lock while there is no reason.
class Refusal {
 public:
  // OK means that ranks are served from now on.
  void Set(absl::Status why) {
    MutexLock lock(&mutex_);
    is_set_.store(!why.ok(), std::memory_order_release);
    why_ = std::move(why);
  }

  // OK means that ranks are served.
  absl::Status status() const {
    if (!is_set_.load(std::memory_order_acquire)) return absl::OkStatus();
    MutexLock lock(&mutex_);
    return why_;
  }

 private:
  std::atomic<bool> is_set_ = false;
  mutable Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_PULL_PULL_LIMITS_H_
