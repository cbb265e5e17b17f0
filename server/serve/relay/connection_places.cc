#include "server/serve/relay/connection_places.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ballast {

size_t ConnectionPlaces::OfDescriptors(uint64_t limit) {
  constexpr size_t kMost = 16'384;
  return std::clamp<size_t>(limit / 2 / kDescriptors, 16, kMost);
}

absl::StatusOr<std::shared_ptr<void>> ConnectionPlaces::Take(
    const std::string& peer, bool is_unix, absl::Time now) {
  MutexLock lock(&counts_->mutex);
  std::string why;
  size_t& of_peer = counts_->by_peer[peer];
  if (counts_->open >= most_ ||
      (!is_unix && counts_->tcp >= most_ - most_ / 4)) {
    why = absl::StrCat(counts_->open, " connections are open, ", most_,
                       " are the most (of which TCP has three quarters)");
  } else if (of_peer >= std::max<size_t>(most_ / 2, 1)) {
    why = absl::StrCat(peer, " has ", of_peer,
                       " connections, half of what this server may have");
  }
  if (!why.empty()) {
    if (of_peer == 0) counts_->by_peer.erase(peer);
    counts_->refusal = absl::StrCat(
        why,
        ". If these are ranks, start the server with more descriptors, "
        "six for a connection (ulimit -Hn, LimitNOFILE, --ulimit nofile)");
    counts_->refused_at = now;
    refused.Add();
    return absl::ResourceExhaustedError(counts_->refusal);
  }
  ++of_peer;
  ++counts_->open;
  if (!is_unix) ++counts_->tcp;
  return std::shared_ptr<void>(nullptr,
                               [counts = counts_, peer, is_unix](void*) {
                                 MutexLock lock(&counts->mutex);
                                 --counts->open;
                                 if (!is_unix) --counts->tcp;
                                 const auto found = counts->by_peer.find(peer);
                                 if (--found->second == 0)
                                   counts->by_peer.erase(found);
                               });
}

size_t ConnectionPlaces::open() const {
  MutexLock lock(&counts_->mutex);
  return counts_->open;
}

std::string ConnectionPlaces::RefusedSince(absl::Time since) const {
  MutexLock lock(&counts_->mutex);
  return counts_->refused_at >= since ? counts_->refusal : "";
}

}  // namespace ballast
