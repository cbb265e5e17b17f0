#ifndef BALLAST_SERVER_PULL_PULL_LIMITS_H_
#define BALLAST_SERVER_PULL_PULL_LIMITS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"

namespace ballast {

// Counts open Pulls and bounds them. gRPC bounds the calls of one connection
// but not the connections. Pulls are what costs a server memory and work, so
// each counts from its start. Thread-safe.
class PullLimits {
 public:
  // serve.max_streams and serve.max_streams_per_client.
  struct Settings {
    uint32_t most = 65'536;
    uint32_t most_a_client = 4096;
  };

  explicit PullLimits(const Settings& settings) : settings_(settings) {}

  // Counts one more Pull of `client` until End. Errors: RESOURCE_EXHAUSTED,
  // naming the setting.
  absl::Status Begin(const std::string& client);
  void End(const std::string& client);

 private:
  const Settings settings_;
  Mutex mutex_;
  uint64_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> by_client_ ABSL_GUARDED_BY(mutex_);
};

// The client as which a peer is counted: its address without the port. `peer`
// is as named by gRPC ("ipv4:10.0.0.1:4711"). All peers over Unix sockets are
// one client.
std::string ClientOf(absl::string_view peer);

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_PULL_LIMITS_H_
