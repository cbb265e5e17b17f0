#include "tests/simulation/sim_sweep.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/simulation/simulation.h"

namespace ballast {
namespace {

// A folder of its own for arenas, removed at the end.
class ArenaFolder {
 public:
  ArenaFolder() {
    char path[] = "/dev/shm/ballast-simulation-XXXXXX";
    if (mkdtemp(path) != nullptr) path_ = path;
  }
  ~ArenaFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void Print(const SimPlan& plan, const SimOutcome& outcome) {
  std::fprintf(stderr, "FAILED %s\n", Describe(plan).c_str());
  for (const std::string& violation : outcome.violations) {
    std::fprintf(stderr, "  violation: %s\n", violation.c_str());
  }
  std::fprintf(stderr,
               "  replay: bazel run //tests/simulation:simulate -- --seed %llu "
               "--verbose%s\n",
               static_cast<unsigned long long>(plan.seed),
               plan.revisions ? " --changes"
               : plan.apart   ? " --apart"
               : plan.spread  ? " --spread"
                              : "");
}

}  // namespace

SimTotals RunSeeds(const SimSweep& sweep) {
  const ArenaFolder folder;
  SimulationOptions options;
  options.defects = sweep.defects;
  options.verbose = sweep.verbose;
  options.arena = folder.path();
  // A process's first run initialises what later ones find: without this, a
  // seed would not replay alone as it ran among others.
  SimulationOptions first_run = options;
  first_run.verbose = false;
  Simulate(sweep.draw(0), first_run);
  SimTotals totals;
  const absl::Time start = absl::Now();
  for (uint64_t i = 0; i < sweep.seeds; ++i) {
    SimPlan plan = sweep.draw(sweep.first + i);
    if (sweep.change) sweep.change(&plan);
    const SimOutcome outcome = Simulate(plan, options);
    ++totals.seeds;
    for (int kind = 0; kind < SimFault::kKinds; ++kind) {
      totals.faults[kind] += outcome.faults[kind];
    }
    totals.longest_next = std::max(totals.longest_next, outcome.longest_next);
    totals.starts += outcome.starts;
    totals.batches += outcome.batches;
    totals.offers += outcome.offers;
    totals.changes += outcome.changes;
    totals.switches += outcome.switches;
    totals.trace = totals.trace * 31 + outcome.trace;
    if (outcome.violations.empty()) continue;
    totals.failed_seeds.push_back(plan.seed);
    Print(plan, outcome);
    if (sweep.stop_at_failure) break;
  }
  totals.took = absl::Now() - start;
  return totals;
}

std::string Describe(const SimTotals& totals) {
  std::string text = absl::StrCat(
      totals.seeds, " seeds in ",
      absl::FormatDuration(absl::Trunc(totals.took, absl::Milliseconds(1))),
      ": ", totals.failed_seeds.size(), " failed; ", totals.starts,
      " starts of jobs, ", totals.batches, " batches, ", totals.switches,
      " switches of threads; longest Next ",
      absl::FormatDuration(
          absl::Trunc(totals.longest_next, absl::Milliseconds(1))),
      "\n", totals.offers, " offers of changes, ", totals.changes,
      " hold\nfaults:");
  for (int kind = 0; kind < SimFault::kKinds; ++kind) {
    absl::StrAppend(&text, kind == 0 ? " " : ", ", totals.faults[kind], " ",
                    SimFault::Name(static_cast<SimFault::Kind>(kind)));
  }
  absl::StrAppend(&text, "\ntrace ", absl::Hex(totals.trace, absl::kZeroPad16),
                  "\n");
  return text;
}

}  // namespace ballast
