#include "server/serve/service/unread_answers.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/relay/relayed_peer.h"

namespace ballast {

std::string UnreadAnswers::ClientOf(
    const grpc::CallbackServerContext& context) {
  const std::string peer = RelayedPeerName(context.peer());
  return absl::StartsWith(peer, "unix:") ? peer : GetClient(peer);
}

absl::StatusOr<std::shared_ptr<void>> UnreadAnswers::Take(
    const std::string& client, uint64_t bytes) {
  // The message, and its bytes for the wire.
  bytes *= 2;
  MutexLock lock(&counts_->mutex);
  const auto found = counts_->by_client.find(client);
  const uint64_t held = found == counts_->by_client.end() ? 0 : found->second;
  if (held > 0 && (held + bytes > bounds_.bytes_a_client ||
                   counts_->bytes + bytes > bounds_.bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "answers of ", held, " bytes to ", client, ", and of ", counts_->bytes,
        " to all clients, have not been read; ", bounds_.bytes_a_client,
        " and ", bounds_.bytes, " are the most; read them, or try again"));
  }
  counts_->bytes += bytes;
  counts_->by_client[client] += bytes;
  return std::shared_ptr<void>(
      nullptr, [counts = counts_, client, bytes](void*) {
        MutexLock lock(&counts->mutex);
        counts->bytes -= bytes;
        const auto held = counts->by_client.find(client);
        held->second -= bytes;
        if (held->second == 0) counts->by_client.erase(held);
      });
}

}  // namespace ballast
