// Runs simulated jobs: docs/decisions/0029-simulation.md.
//
//   simulate --seeds 100000               seeds 0, 1, ...
//   simulate --first 5000 --seeds 1000    seeds 5000 to 5999
//   simulate --seed 17 --verbose          one, with every event
//   simulate --changes --seeds 1000       jobs that are changed while they run
//   simulate --spread --seeds 1000        ranks that spread over servers
//   simulate --apart --seeds 1000         servers that topology.meeting
//   compares

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "tests/simulation/sim_sweep.h"

int main(int argc, char** argv) {
  ballast::SimSweep sweep;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    uint64_t value = 0;
    const bool has_value =
        i + 1 < argc && absl::SimpleAtoi(argv[i + 1], &value);
    if (option == "--verbose") {
      sweep.verbose = true;
      continue;
    }
    if (option == "--changes") {
      sweep.draw = ballast::DrawChangePlan;
      continue;
    }
    if (option == "--spread") {
      sweep.draw = ballast::DrawSpreadPlan;
      continue;
    }
    if (option == "--apart") {
      sweep.draw = ballast::DrawApartPlan;
      continue;
    }
    if (!has_value) {
      std::fprintf(stderr,
                   "usage: %s [--seeds N] [--first N] [--seed N] "
                   "[--verbose] [--changes] [--apart] [--spread]\n",
                   argv[0]);
      return 2;
    }
    ++i;
    if (option == "--seed") {
      sweep.first = value;
      sweep.seeds = 1;
    } else if (option == "--seeds") {
      sweep.seeds = value;
    } else if (option == "--first") {
      sweep.first = value;
    }
  }
  const ballast::SimTotals totals = ballast::RunSeeds(sweep);
  std::printf("%s", Describe(totals).c_str());
  return totals.failed_seeds.empty() ? 0 : 1;
}
