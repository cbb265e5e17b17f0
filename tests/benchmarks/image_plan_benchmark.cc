// Measures image plans a second on one core for each family, over the same
// drawn sizes (wanted: 5 million a second).

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "common/random.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/image_plan/image_planner.h"
#include "server/model/profiles.h"

namespace ballast {
namespace {

// Sides from 200 to 3000, drawn once.
const std::vector<TileShape>& Sizes() {
  static const auto& sizes = *[] {
    auto* drawn = new std::vector<TileShape>(1 << 12);
    Random random(1, 0);
    for (TileShape& size : *drawn) {
      size.height = 200 + random.Below(2800);
      size.width = 200 + random.Below(2800);
    }
    return drawn;
  }();
  return sizes;
}

void BM_Plan(benchmark::State& state, const std::string& name) {
  const ImagePlanner planner =
      ImagePlanner::Create(*FindImageFamily(name)).value();
  const std::vector<TileShape>& sizes = Sizes();
  size_t next = 0;
  uint64_t tokens = 0;
  for (auto _ : state) {
    const TileShape& size = sizes[next++ % sizes.size()];
    const auto plan = planner.Plan(size.height, size.width);
    tokens += plan.ok() ? plan->tokens : 0;
  }
  benchmark::DoNotOptimize(tokens);
  state.SetItemsProcessed(state.iterations());
}

const bool kRegistered = [] {
  for (const std::string& name : ProfileNames(TakesImages)) {
    benchmark::RegisterBenchmark(("BM_Plan/" + name).c_str(), BM_Plan, name);
  }
  return true;
}();

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
