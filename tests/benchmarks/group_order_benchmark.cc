// Measures looking up samples in the order of a source of row groups: 24
// million samples in 240,000 groups, as FineVision has them, 16 groups at a
// time. The look-ups of `sequential` follow one another, as those of a step do.

#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "server/schedule/group_order.h"

namespace ballast {
namespace {

constexpr uint64_t kGroups = 240'000;

std::vector<uint64_t> Starts() {
  std::vector<uint64_t> starts;
  uint64_t size = 0;
  for (uint64_t i = 0; i < kGroups; ++i) {
    starts.push_back(size);
    // The last group of a file has fewer.
    size += i % 50 == 49 ? 1 + i * 37 % 99 : 100;
  }
  starts.push_back(size);
  return starts;
}

const std::vector<uint64_t>& AllStarts() {
  static const auto& starts = *new std::vector<uint64_t>(Starts());
  return starts;
}

GroupOrder MakeOrder() {
  const auto& starts = AllStarts();
  return GroupOrder(absl::MakeConstSpan(starts.data(), kGroups), starts.back(),
                    16, 1234);
}

void LookUp(benchmark::State& state, bool sequential) {
  const GroupOrder order = MakeOrder();
  const uint64_t size = AllStarts().back();
  uint64_t i = 0;
  for (auto _ : state) {
    const uint64_t position = sequential ? i % size : Mix64(i) % size;
    benchmark::DoNotOptimize(order.At(3, position));
    ++i;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK_CAPTURE(LookUp, sequential, true);
BENCHMARK_CAPTURE(LookUp, random, false);

void BuildEpoch(benchmark::State& state) {
  const auto& starts = AllStarts();
  for (auto _ : state) {
    const GroupEpoch epoch(absl::MakeConstSpan(starts.data(), kGroups),
                           starts.back(), 16, 1234);
    benchmark::DoNotOptimize(epoch.At(0));
  }
}
BENCHMARK(BuildEpoch)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ballast

BENCHMARK_MAIN();
