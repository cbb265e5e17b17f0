#include "server/schedule/pipeline_simulator.h"

#include <algorithm>
#include <cstddef>

namespace ballast {
namespace {

constexpr double kBackwardOverForward = 2;

struct Pass {
  bool forward;
  size_t micro_batch;
};

// The passes of one stage in the order in which they run.
std::vector<Pass> PassesOfStage(size_t stage, size_t stages, size_t n) {
  const size_t ahead = std::min(stages - 1 - stage, n);
  std::vector<Pass> passes;
  passes.reserve(2 * n);
  for (size_t i = 0; i < ahead; ++i) passes.push_back({true, i});
  for (size_t i = ahead; i < n; ++i) {
    passes.push_back({true, i});
    passes.push_back({false, i - ahead});
  }
  for (size_t i = n - ahead; i < n; ++i) passes.push_back({false, i});
  return passes;
}

constexpr double kNotDone = -1;

}  // namespace

double SimulateOneForwardOneBackward(
    const std::vector<StageTimes>& micro_batches) {
  const size_t n = micro_batches.size();
  if (n == 0) return 0;
  const size_t stages = micro_batches[0].size();
  std::vector<std::vector<Pass>> passes(stages);
  for (size_t s = 0; s < stages; ++s) passes[s] = PassesOfStage(s, stages, n);

  // End time of each pass; a stage advances as far as its inputs allow.
  std::vector<std::vector<double>> forward(stages,
                                           std::vector<double>(n, kNotDone));
  std::vector<std::vector<double>> backward = forward;
  std::vector<size_t> next(stages, 0);
  std::vector<double> free_at(stages, 0);
  size_t left = 2 * n * stages;
  while (left > 0) {
    for (size_t s = 0; s < stages; ++s) {
      for (; next[s] < passes[s].size(); ++next[s], --left) {
        const auto [is_forward, m] = passes[s][next[s]];
        const double input = is_forward ? (s == 0 ? 0 : forward[s - 1][m])
                             : s + 1 == stages ? forward[s][m]
                                               : backward[s + 1][m];
        if (input == kNotDone) break;
        const double time = micro_batches[m][s];
        free_at[s] = std::max(free_at[s], input) +
                     (is_forward ? time : kBackwardOverForward * time);
        (is_forward ? forward : backward)[s][m] = free_at[s];
      }
    }
  }
  return *std::max_element(free_at.begin(), free_at.end());
}

}  // namespace ballast
