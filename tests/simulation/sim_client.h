#ifndef BALLAST_TESTS_SIMULATION_SIM_CLIENT_H_
#define BALLAST_TESTS_SIMULATION_SIM_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "client/loader_client.h"
#include "client/pull_channel.h"
#include "tests/simulation/sim_network.h"

namespace ballast {

// Bytes of the blocks that one rank holds, as their owner sees them.
struct SimHeld {
  uint64_t bytes = 0;
  uint64_t most = 0;
  uint64_t largest_block = 0;
};

struct SimClientOptions {
  std::string address;
  int node = 0;  // the rank's
  uint32_t streams = 1;
  bool accept_shared_memory = true;
  // A planted defect: blocks in shared memory are never found overwritten.
  bool skip_generation_check = false;
};

// A rank's client of the server at an address: the real fetcher and stream of
// blocks over Pulls of the simulated network; Attach and GetSchedule as
// simulated calls with a deadline of 10 s. Other calls are UNIMPLEMENTED.
// `network` outlives it, and `held` its blocks.
std::unique_ptr<LoaderClient> MakeSimClient(const SimClientOptions& options,
                                            SimNetwork* network,
                                            std::shared_ptr<SimHeld> held);

// Pulls of a rank at `client`, a node, over the simulated network, in place of
// gRPC: the interfaces that gRPC offers for this, on both sides. Messages stay
// in order, a receiver that does not read holds its sender up, and each
// operation has one reaction, which runs on a thread of its node. `lanes`:
// those of a Pull, with the Pull itself. `network` outlives the channel and its
// Pulls.
std::shared_ptr<PullChannel> MakeSimPullChannel(SimNetwork* network, int client,
                                                const std::string& address,
                                                uint32_t lanes);

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_CLIENT_H_
