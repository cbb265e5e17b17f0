// Reports how evenly `lpt` and `refined` load the ranks, and what share of the
// bytes each moves, by kind of load and number of ranks. Prints CSV for
// docs/measurements/schedule.md and tests/benchmarks/plot_balance.py:
//
//   bazel run --config=opt //tests/benchmarks:balance_report > balance.csv
//   tests/benchmarks/plot_balance.py balance.csv docs/balance.svg
//
// A cell is the mean over 20 seeded micro-batches of 8 samples a rank.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "server/schedule/balance.h"
#include "server/schedule/group_order.h"

namespace ballast {
namespace {

constexpr int kRounds = 20;
constexpr uint32_t kSamplesPerRank = 8;

double Uniform(std::mt19937* random) {
  return ((*random)() + 0.5) / 4294967296.0;
}

double Normal(std::mt19937* random) {
  return std::sqrt(-2 * std::log(Uniform(random))) *
         std::cos(2 * 3.14159265358979323846 * Uniform(random));
}

// Draws the patches of one sample, a multiple of 4 as with merge 2.
double Draw(const std::string& kind, std::mt19937* random) {
  double patches = 0;
  if (kind == "receipts") {
    patches = 1600 + 450 * Normal(random);
  } else if (kind == "lognormal") {
    patches = 1200 * std::exp(0.9 * Normal(random));
  } else {  // bimodal: thumbnails and full pages
    patches = Uniform(random) < 0.7 ? 256 + 64 * Normal(random)
                                    : 4000 + 300 * Normal(random);
  }
  return 4 * std::floor(std::clamp(patches, 16.0, 16384.0) / 4);
}

struct Figures {
  double max_over_mean = 0, max_over_min = 0, over_bound = 0, moved = 0;
};

void AddFigures(const std::vector<double>& costs, const Groups& groups,
                Figures* sums) {
  const std::vector<double> loads = GroupLoads(costs, groups);
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
  double moved = 0;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    for (const uint32_t i : groups[g]) {
      if (i / kSamplesPerRank != g) moved += costs[i];
    }
  }
  sums->max_over_mean += *most * loads.size() / total / kRounds;
  sums->max_over_min += *most / *least / kRounds;
  sums->over_bound += *most / LoadLowerBound(costs, groups.size()) / kRounds;
  sums->moved += moved / total / kRounds;
}

Groups AsRead(uint32_t ranks) {
  Groups groups(ranks);
  for (uint32_t i = 0; i < ranks * kSamplesPerRank; ++i) {
    groups[i / kSamplesPerRank].push_back(i);
  }
  return groups;
}

// Balances as the schedule does, then numbers the groups so that little moves.
Groups Refined(const std::vector<double>& costs, uint32_t ranks) {
  ModuleShards shards;
  shards.ranks = {v1::MODULE_VISION, ranks, {}};
  for (uint32_t i = 0; i < costs.size(); ++i) {
    shards.reader.push_back(i / kSamplesPerRank);
    shards.bytes.push_back(static_cast<uint64_t>(costs[i]) * 588);
  }
  return NumberGroups(*BalanceRefined(costs, ranks, false), 1, {shards});
}

void Print(const std::string& kind, uint32_t ranks, const char* algorithm,
           const Figures& figures) {
  absl::PrintF("%s,%d,%s,%.4f,%.4f,%.5f,%.3f\n", kind, ranks, algorithm,
               figures.max_over_mean, figures.max_over_min, figures.over_bound,
               figures.moved);
}

void Report() {
  absl::PrintF(
      "load,ranks,algorithm,max_over_mean,max_over_min,over_bound,"
      "moved_share\n");
  for (const std::string kind : {"receipts", "lognormal", "bimodal"}) {
    for (const uint32_t ranks : {4, 8, 32, 128, 1024}) {
      Figures off, lpt, refined;
      for (int round = 0; round < kRounds; ++round) {
        std::mt19937 random(round);
        std::vector<double> costs(kSamplesPerRank * ranks);
        for (double& cost : costs) cost = Draw(kind, &random);
        AddFigures(costs, AsRead(ranks), &off);
        AddFigures(costs, *BalanceLpt(costs, ranks), &lpt);
        AddFigures(costs, Refined(costs, ranks), &refined);
      }
      Print(kind, ranks, "as read", off);
      Print(kind, ranks, "lpt", lpt);
      Print(kind, ranks, "refined", refined);
    }
  }
}

}  // namespace
}  // namespace ballast

int main() { ballast::Report(); }
