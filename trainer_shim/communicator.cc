#include "trainer_shim/communicator.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace ballast {

LoaderClient* MeetingServer(
    const std::vector<std::unique_ptr<LoaderClient>>& servers) {
  for (const auto& server : servers) {
    if (servers.size() == 1 || server->CheckHealth().ok()) return server.get();
  }
  return servers[0].get();
}

absl::Status Communicator::Broadcast(
    uint32_t root, absl::Span<const absl::Span<uint8_t>> slices,
    StreamHandle stream) {
  if (root >= size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a broadcast from rank ", root, " of ", size()));
  }
  std::vector<SendSlice> sends;
  std::vector<ReceiveSlice> receives;
  for (const absl::Span<uint8_t>& slice : slices) {
    if (rank() != root) {
      receives.push_back({root, slice});
      continue;
    }
    for (uint32_t peer = 0; peer < size(); ++peer) {
      if (peer != root) sends.push_back({peer, slice});
    }
  }
  return AllToAllV(sends, receives, stream);
}

}  // namespace ballast
