#ifndef BALLAST_TESTS_SIMULATION_SIM_CLIENT_H_
#define BALLAST_TESTS_SIMULATION_SIM_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "client/loader_client.h"
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

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_CLIENT_H_
