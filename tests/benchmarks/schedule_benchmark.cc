// Measures one step of the schedule, from index to finished message, by
// data-parallel size at 8 samples a rank (wanted: 16,384 ranks in under 100 ms
// on a core, 1,024 in under 5 ms), and look-ups in the order (wanted: 10
// million a second). Packs of scheduled lengths with a long tail, by ranks.

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "server/schedule/balance.h"
#include "server/schedule/context_packs.h"
#include "server/schedule/pack_schedule.h"
#include "server/schedule/sample_order.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

void BM_ScheduleStep(benchmark::State& state) {
  const uint32_t dp = state.range(0);
  static const FakeSourceIndex* index = new FakeSourceIndex(Receipts(1 << 17));
  v1::Config config = JobConfig(dp, dp, 8 * dp, 8 * dp);
  config.mutable_balance()->set_algorithm(
      static_cast<v1::Balance::Algorithm>(state.range(1)));
  const auto scheduler = Scheduler::Create(config, {index});
  double spread = 0;
  double bytes = 0;
  uint64_t step = 0;
  for (auto _ : state) {
    const auto schedule = (*scheduler)->Schedule(step++);
    const auto& vision = schedule->micro_batches(0).modules(0);
    const double largest = *std::max_element(vision.load_after().begin(),
                                             vision.load_after().end());
    const double bound = LoadLowerBound(
        std::vector<double>(vision.cost().begin(), vision.cost().end()), dp);
    spread = std::max(spread, largest / bound);
    bytes = schedule->ByteSizeLong();
  }
  // The largest load of the worst step over the lower bound.
  state.counters["over_bound"] = spread;
  state.counters["samples"] = 8 * dp;
  // Size of the serialised message.
  state.counters["bytes_a_sample"] = bytes / (8 * dp);
}
BENCHMARK(BM_ScheduleStep)
    ->ArgNames({"dp", "algorithm"})
    ->ArgsProduct({{8, 128, 1024, 16384},
                   {v1::Balance::ALGORITHM_LPT,
                    v1::Balance::ALGORITHM_REFINED}})
    ->Unit(benchmark::kMillisecond);

// A step with balance.placement `split` (1) or `paired` (0), with costs of both
// modules, and one server or servers of 8 ranks (wanted: 16,384 ranks of one
// server in under 150 ms).
void BM_PlacementStep(benchmark::State& state) {
  const uint32_t dp = state.range(0);
  const absl::string_view kind = kDrawnLoads[state.range(1)];
  const FakeSourceIndex index(DrawLoad(kind, 1 << 17));
  v1::Config config = DrawnLoadConfig(dp, 8, state.range(3) == 1 ? dp : 8);
  if (state.range(2) == 1) {
    config.mutable_balance()->set_placement(v1::Balance::PLACEMENT_SPLIT);
  }
  const auto scheduler = Scheduler::Create(config, {&index});
  uint64_t step = 0;
  double moved = 0;
  double tokens = 0;
  for (auto _ : state) {
    const auto schedule = (*scheduler)->Schedule(step++);
    const v1::EmbeddingsMoved& embeddings =
        schedule->totals().embeddings_moved();
    moved += embeddings.tokens_within_servers() +
             embeddings.tokens_between_servers();
    tokens += schedule->totals().patches() / 4;
  }
  state.SetLabel(std::string(kind));
  state.counters["moved"] = moved / tokens;
}
BENCHMARK(BM_PlacementStep)
    ->ArgNames({"dp", "load", "split", "one_server"})
    ->ArgsProduct({{1024, 16384}, {0, 1, 2, 3}, {0, 1}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// Lengths of texts with a long tail, 16 a rank.
std::vector<uint32_t> DrawLengths(uint32_t ranks, uint32_t most) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> draw(std::log(820.0), 1.8);
  std::vector<uint32_t> lengths(16 * ranks);
  for (uint32_t& length : lengths) {
    length = std::clamp<double>(draw(random), 16, most);
  }
  return lengths;
}

// The packs of a step with packing.mode scheduled: 16 samples a rank, packs of
// 8,192 tokens.
void BM_PackBalanced(benchmark::State& state) {
  const uint32_t ranks = state.range(0);
  const std::vector<uint32_t> lengths = DrawLengths(ranks, 8192);
  std::vector<uint64_t> squares;
  for (const uint64_t length : lengths) squares.push_back(length * length);
  size_t packs = 0;
  for (auto _ : state) {
    packs = PackBalanced(lengths, squares, {8192, ranks})->size();
  }
  state.counters["packs"] = packs;
}
BENCHMARK(BM_PackBalanced)
    ->ArgName("ranks")
    ->Arg(256)
    ->Arg(1024)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);

// The same where up to 16 ranks share a pack: packing.dynamic_cp.
void BM_PackByContext(benchmark::State& state) {
  const uint32_t ranks = state.range(0);
  const std::vector<uint32_t> lengths = DrawLengths(ranks, 131072);
  std::vector<double> costs;
  for (const double length : lengths) costs.push_back(length * length);
  size_t micro_batches = 0;
  for (auto _ : state) {
    micro_batches = PackByContext(lengths, costs, {ranks, 16, 8192, 1})->size();
  }
  state.counters["micro_batches"] = micro_batches;
}
BENCHMARK(BM_PackByContext)
    ->ArgName("ranks")
    ->Arg(16)
    ->Arg(256)
    ->Arg(1024)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);

// Looks up positions of a shuffled mixture of 10^10 samples; there is no table
// of them.
void BM_OrderLookup(benchmark::State& state) {
  const SampleOrder order({{"a", 7'500'000'000, 3}, {"b", 2'500'000'000, 1}},
                          1234, true);
  uint64_t position = 0;
  uint64_t sum = 0;
  for (auto _ : state) sum += order.At(position++).ordinal;
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_OrderLookup);

// The same with as many changes of the mixture as a configuration may have,
// across all of them (wanted: 5 million a second).
void BM_OrderLookupWithChanges(benchmark::State& state) {
  std::vector<SampleOrder::Change> changes;
  for (uint32_t i = 1; i <= 256; ++i) {
    changes.push_back({uint64_t{i} << 20, {1.0 + i % 7, 1.0 + i % 5}});
  }
  const SampleOrder order({{"a", 7'500'000'000, 3}, {"b", 2'500'000'000, 1}},
                          changes, 1234, true);
  uint64_t position = 0;
  uint64_t sum = 0;
  for (auto _ : state) {
    sum += order.At(position).ordinal;
    // An odd stride: every change is looked up, in no order.
    position = (position + 77'777'777) & ((uint64_t{1} << 29) - 1);
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_OrderLookupWithChanges);

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
