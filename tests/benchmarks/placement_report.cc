// Reports what balance.objective `sum` and `phases` and balance.placement
// `split` make of the same steps, by kind of load and number of ranks: largest
// load over the mean of both modules, and over what no partition is below
// (LoadLowerBound, SharedBound), the step's time after the least one, and the
// share of embeddings that move. Plans only; costs of Qwen2.5-VL-7B. Prints
// CSV for docs/schedule.md:
//
//   bazel run --config=opt //tests/benchmarks:placement_report
//
// A cell is the mean over 4 steps of one micro-batch of 8 samples a rank.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/strings/str_format.h"
#include "server/schedule/balance.h"
#include "server/schedule/encoder_placement.h"
#include "server/schedule/placement_figures.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

constexpr uint32_t kSamplesPerRank = 8;
constexpr uint32_t kSteps = 4;

// The least that a module's largest load can be, in any partition.
double BoundOf(const v1::ModuleSchedule& module) {
  constexpr double kScale = 1024;
  const uint32_t ranks = module.load_after_size();
  const std::vector<double> costs(module.cost().begin(), module.cost().end());
  const double simple = LoadLowerBound(costs, ranks);
  std::vector<int64_t> scaled;
  for (const double cost : costs) scaled.push_back(std::llround(cost * kScale));
  return std::max(
      simple,
      SharedBound(scaled, ranks, std::llround(simple * kScale)) / kScale);
}

struct Figures : PlacementFigures {
  // Sums over the micro-batches, of vision and of language.
  double largest[2] = {};
  double bound[2] = {};

  double over_bound(int module) const {
    return largest[module] / bound[module];
  }
};

Figures GetFigures(const v1::Config& config, const FakeSourceIndex& index) {
  Figures figures;
  const auto scheduler = Scheduler::Create(config, {&index});
  for (uint64_t step = 0; step < kSteps; ++step) {
    const auto schedule = (*scheduler)->Schedule(step);
    AddStep(*schedule, 4, &figures);
    for (const v1::MicroBatchSchedule& each : schedule->micro_batches()) {
      for (int m = 0; m < 2; ++m) {
        const v1::ModuleSchedule& module = each.modules(m);
        figures.largest[m] += *std::max_element(module.load_after().begin(),
                                                module.load_after().end());
        figures.bound[m] += BoundOf(module);
      }
    }
  }
  return figures;
}

void Report() {
  absl::PrintF(
      "load,ranks,balance,vision,language,vision_over_bound,"
      "language_over_bound,wait_a_micro_batch,wait_a_module,"
      "moved_within,moved_between\n");
  for (const absl::string_view kind : kDrawnLoads) {
    for (const uint32_t ranks : {8, 64, 512, 4096}) {
      const FakeSourceIndex index(
          DrawLoad(kind, kSteps * kSamplesPerRank * ranks));
      for (const absl::string_view balance : {"sum", "phases", "split"}) {
        v1::Config config = DrawnLoadConfig(ranks, kSamplesPerRank);
        if (balance == "phases") {
          config.mutable_balance()->set_objective(
              v1::Balance::OBJECTIVE_PHASES);
        } else if (balance == "split") {
          config.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
        }
        const Figures figures = GetFigures(config, index);
        const double tokens = figures.image_tokens;
        absl::PrintF("%s,%d,%s,%.4f,%.4f,%.4f,%.4f,%.3f,%.3f,%.3f,%.3f\n", kind,
                     ranks, balance, figures.spread(v1::MODULE_VISION),
                     figures.spread(v1::MODULE_LANGUAGE), figures.over_bound(0),
                     figures.over_bound(1),
                     figures.time_together / figures.mean_time,
                     figures.time_by_module / figures.mean_time,
                     figures.tokens_within_servers / tokens,
                     figures.tokens_between_servers / tokens);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace ballast

int main() {
  ballast::Report();
  return 0;
}
