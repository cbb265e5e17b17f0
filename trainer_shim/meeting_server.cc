#include "trainer_shim/meeting_server.h"

namespace ballast {

LoaderClient* MeetingServer(
    const std::vector<std::unique_ptr<LoaderClient>>& servers) {
  for (const auto& server : servers) {
    if (servers.size() == 1 || server->CheckHealth().ok()) return server.get();
  }
  return servers[0].get();
}

}  // namespace ballast
