#ifndef BALLAST_TESTS_SIMULATION_SIM_PLAN_H_
#define BALLAST_TESTS_SIMULATION_SIM_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/failover.h"
#include "tests/fakes/synthetic_schedule.h"
#include "tests/simulation/sim_network.h"

namespace ballast {

// One fault that comes in from outside, and goes away again.
struct SimFault {
  enum class Kind {
    kKillServer,    // it comes back after `lasts`
    kOtherData,     // likewise, and serves other data for as long again
    kDrainServer,   // SIGTERM; it comes back
    kFreezeServer,  // SIGSTOP, SIGCONT
    kDiskErrors,    // reads fail now and then
    kDiskStall,     // no read ends
    kCut,           // one direction between a rank's machine and a server's
    kReset,         // all connections between them break
    kFreezeRank,
    kKillRank,
  };
  static constexpr int kKinds = 10;
  static const char* Name(Kind kind);

  Kind kind = Kind::kKillServer;
  absl::Duration at;
  absl::Duration lasts;
  uint32_t server = 0;
  uint32_t rank = 0;       // among all ranks; unused by faults of a server
  bool to_server = false;  // the direction of a cut
};

// Everything that a run draws from its seed.
struct SimPlan {
  uint64_t seed = 0;
  SyntheticJob job;
  uint64_t steps = 0;
  uint32_t servers = 2;
  double switch_chance = 0;
  SimNetwork::Options network;
  FailoverOptions failover;
  uint64_t client_memory = 0;  // RoleSource::Options::max_bytes
  uint64_t server_memory = 0;
  uint32_t server_threads = 2;
  uint32_t prefetch_steps = 2;
  uint32_t streams = 1;
  bool shared_memory = false;
  bool encoders_first = false;
  absl::Duration most_compute;  // of a trainer between two batches
  // All faults hit one server, so that no rank may fail.
  bool one_server_is_well = false;
  std::vector<SimFault> faults;
};

// The plan of a seed.
SimPlan DrawPlan(uint64_t seed);

// The longest that a Next may take under the plan's faults.
absl::Duration NextBound(const SimPlan& plan);

std::string Describe(const SimPlan& plan);
std::string Describe(const SimFault& fault);

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_PLAN_H_
