#ifndef BALLAST_CLIENT_PULL_CHANNELS_H_
#define BALLAST_CLIENT_PULL_CHANNELS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>

#include "absl/base/thread_annotations.h"
#include "common/channel_security.h"
#include "common/mutex.h"

namespace ballast {

// The connections of one address's Pulls: one for the Pull itself, and one for
// each further lane. The lanes go to the server that the Pull has reached,
// since a name can stand for several servers (a headless Service) and only that
// one knows the Pull. Thread-safe.
class PullChannels {
 public:
  // Does not connect yet. `count`: connections in all, 1 to kMaxLanes; other
  // numbers count as the nearest of these.
  PullChannels(const std::string& address, const ChannelSecurity& security,
               uint32_t count);

  uint32_t count() const { return count_; }
  const std::shared_ptr<grpc::Channel>& main() const { return main_; }

  // The channels of the further lanes, count() - 1, to `peer`: the other end of
  // the Pull as gRPC names it ("ipv4:10.0.0.1:7070"). The last peer's channels
  // are kept for its next Pull.
  std::vector<std::shared_ptr<grpc::Channel>> LanesTo(const std::string& peer);

 private:
  const std::string address_;
  const ChannelSecurity security_;
  const uint32_t count_;
  const std::shared_ptr<grpc::Channel> main_;
  Mutex mutex_;
  std::string peer_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<grpc::Channel>> lanes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_PULL_CHANNELS_H_
