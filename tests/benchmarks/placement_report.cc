// Reports what balance.objective `sum` and `phases` and balance.placement
// `split` make of the same steps, by kind of load and number of ranks: largest
// load over the mean of both modules, the step's time after the least one, and
// the share of embeddings that move. Plans only; costs of Qwen2.5-VL-7B. Prints
// CSV for docs/schedule.md:
//
//   bazel run --config=opt //tests/benchmarks:placement_report
//
// A cell is the mean over 4 steps of one micro-batch of 8 samples a rank.

#include <cstdint>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "server/schedule/placement_figures.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/drawn_loads.h"
#include "tests/fakes/fake_source_index.h"

namespace ballast {
namespace {

constexpr uint32_t kSamplesPerRank = 8;
constexpr uint32_t kSteps = 4;

PlacementFigures FiguresOf(const v1::Config& config,
                           const FakeSourceIndex& index) {
  PlacementFigures figures;
  const auto scheduler = Scheduler::Create(config, {&index});
  for (uint64_t step = 0; step < kSteps; ++step) {
    AddStep(*(*scheduler)->Schedule(step), 4, &figures);
  }
  return figures;
}

void Report() {
  absl::PrintF(
      "load,ranks,balance,vision,language,wait_a_micro_batch,wait_a_module,"
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
        const PlacementFigures figures = FiguresOf(config, index);
        const double tokens = figures.image_tokens;
        absl::PrintF("%s,%d,%s,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n", kind, ranks,
                     balance, figures.vision_spread(),
                     figures.language_spread(),
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
