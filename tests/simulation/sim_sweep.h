#ifndef BALLAST_TESTS_SIMULATION_SIM_SWEEP_H_
#define BALLAST_TESTS_SIMULATION_SIM_SWEEP_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/sim_plan.h"
#include "tests/simulation/sim_rank.h"

namespace ballast {

// Many seeds, one after the other.
struct SimSweep {
  uint64_t first = 0;
  uint64_t seeds = 1;
  SimDefects defects;
  // DrawPlan, DrawChangePlan, DrawApartPlan or DrawSpreadPlan.
  SimPlan (*draw)(uint64_t seed) = DrawPlan;
  // Changes each seed's plan; null: none.
  std::function<void(SimPlan* plan)> change;
  bool verbose = false;
  // Ends the sweep at the first seed that fails.
  bool stop_at_failure = false;
};

struct SimTotals {
  uint64_t seeds = 0;
  std::vector<uint64_t> failed_seeds;
  std::array<uint64_t, SimFault::kKinds> faults = {};
  absl::Duration longest_next;
  uint64_t starts = 0;
  uint64_t batches = 0;
  uint64_t offers = 0;   // of changes
  uint64_t changes = 0;  // that hold
  uint64_t switches = 0;
  uint64_t trace = 0;   // of all seeds
  absl::Duration took;  // real time
};

// Runs the seeds. Prints each one that fails, with its plan, its violations and
// how to replay it, to standard error.
SimTotals RunSeeds(const SimSweep& sweep);

// A few lines of text.
std::string Describe(const SimTotals& totals);

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_SWEEP_H_
