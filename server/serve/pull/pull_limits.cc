#include "server/serve/pull/pull_limits.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ballast {

absl::StatusOr<uint64_t> PullLimits::Begin(const std::string& client,
                                           EndCall end) {
  MutexLock lock(&mutex_);
  if (open_ >= settings_.most) {
    return absl::ResourceExhaustedError(
        absl::StrCat(open_, " Pulls are open, and serve.max_streams is ",
                     settings_.most, "; go to another server, or raise it"));
  }
  const auto found = by_client_.find(client);
  if (found != by_client_.end() && found->second >= settings_.most_a_client) {
    return absl::ResourceExhaustedError(absl::StrCat(
        client, " has ", found->second,
        " Pulls open, and serve.max_streams_per_client is ",
        settings_.most_a_client,
        "; does it connect again without closing its Pulls? else raise it"));
  }
  if (silent_.size() >= settings_.most_silent) {
    const auto oldest = silent_.begin();
    oldest->second(absl::AbortedError(
        absl::StrCat("the Pull sent no message, and ", silent_.size(),
                     " newer ones have been opened")));
    silent_.erase(oldest);
  }
  ++open_;
  ++by_client_[client];
  silent_.emplace(++begun_, std::move(end));
  return begun_;
}

void PullLimits::Spoke(uint64_t pull) {
  MutexLock lock(&mutex_);
  silent_.erase(pull);
}

void PullLimits::End(const std::string& client, uint64_t pull) {
  MutexLock lock(&mutex_);
  silent_.erase(pull);
  --open_;
  const auto found = by_client_.find(client);
  if (--found->second == 0) by_client_.erase(found);
}

std::string GetClient(absl::string_view peer) {
  if (absl::StartsWith(peer, "unix")) return "unix";
  const size_t port = peer.rfind(':');
  return std::string(peer.substr(0, port));
}

}  // namespace ballast
