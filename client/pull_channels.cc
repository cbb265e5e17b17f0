#include "client/pull_channels.h"

#include <algorithm>

#include "client/server_channel.h"
#include "proto/transport.h"

namespace ballast {

PullChannels::PullChannels(const std::string& address,
                           const ChannelSecurity& security, uint32_t count)
    : address_(address),
      security_(security),
      count_(std::clamp(count, 1u, kMaxLanes)),
      main_(MakePullChannel(address, security)) {}

std::vector<std::shared_ptr<grpc::Channel>> PullChannels::LanesTo(
    const std::string& peer) {
  MutexLock lock(&mutex_);
  if (peer != peer_ || lanes_.empty()) {
    peer_ = peer;
    lanes_.clear();
    for (uint32_t i = 1; i < count_; ++i) {
      lanes_.push_back(MakePullChannel(address_, security_, peer));
    }
  }
  return lanes_;
}

}  // namespace ballast
