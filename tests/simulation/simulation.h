#ifndef BALLAST_TESTS_SIMULATION_SIMULATION_H_
#define BALLAST_TESTS_SIMULATION_SIMULATION_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/sim_plan.h"
#include "tests/simulation/sim_rank.h"

namespace ballast {

// The outcome of one simulated job.
struct SimOutcome {
  std::vector<std::string> violations;  // empty if the job kept its promises
  std::array<uint64_t, SimFault::kKinds> faults = {};  // injected, by kind
  absl::Duration longest_next;
  uint64_t starts = 0;
  uint64_t batches = 0;
  uint64_t changes = 0;  // that hold in the end
  uint64_t offers = 0;
  uint64_t switches = 0;
  // A hash of all events, with their times: equal for equal seeds.
  uint64_t trace = 0;
};

struct SimulationOptions {
  SimDefects defects;
  // Prints every event and the product's log, with virtual times.
  bool verbose = false;
  // A folder in memory for arenas and revisions.
  std::string arena;
};

// Runs a job of `plan` from its first step to its last: servers, ranks and
// network, with the plan's faults, and restarts of the job after a rank has
// failed. Once the faults are over, a start must succeed. Checks the history
// (sim_rank.h), changes (sim_revisions.h), the time that every Next takes,
// and the bounds on memory.
SimOutcome Simulate(const SimPlan& plan, const SimulationOptions& options);

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIMULATION_H_
