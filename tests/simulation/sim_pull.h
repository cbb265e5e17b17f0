#ifndef BALLAST_TESTS_SIMULATION_SIM_PULL_H_
#define BALLAST_TESTS_SIMULATION_SIM_PULL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "client/pull_channel.h"
#include "tests/simulation/sim_network.h"

namespace ballast {

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

#endif  // BALLAST_TESTS_SIMULATION_SIM_PULL_H_
