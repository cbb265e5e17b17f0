#include "server/schedule/pipeline_order.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

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

namespace {

constexpr size_t kMaxFitted = 128;
constexpr size_t kMaxSwapped = 48;
constexpr int kMaxSwapPasses = 4;

std::vector<StageTimes> InOrder(const std::vector<StageTimes>& micro_batches,
                                const std::vector<uint32_t>& order) {
  std::vector<StageTimes> ordered;
  ordered.reserve(order.size());
  for (const uint32_t m : order) ordered.push_back(micro_batches[m]);
  return ordered;
}

double Time(const std::vector<StageTimes>& micro_batches,
            const std::vector<uint32_t>& order) {
  return SimulateOneForwardOneBackward(InOrder(micro_batches, order));
}

// Appends the micro-batches of `middle`, which are in descending order of their
// first stage: each time the one after which the pipeline has idled least.
std::vector<uint32_t> Fit(const std::vector<StageTimes>& micro_batches,
                          std::vector<uint32_t> order,
                          std::vector<uint32_t> middle) {
  while (!middle.empty()) {
    size_t best = 0;
    double best_idle = 0;
    for (size_t k = 0; k < middle.size(); ++k) {
      order.push_back(middle[k]);
      double work = 0;
      for (const uint32_t m : order) work += micro_batches[m][0];
      // The first stage does all forward and backward work.
      const double idle = Time(micro_batches, order) - 3 * work;
      order.pop_back();
      if (k == 0 || idle < best_idle) {
        best = k;
        best_idle = idle;
      }
    }
    order.push_back(middle[best]);
    middle.erase(middle.begin() + best);
  }
  return order;
}

// Swaps pairs while that shortens the step.
void SwapPairs(const std::vector<StageTimes>& micro_batches,
               std::vector<uint32_t>* order) {
  double best = Time(micro_batches, *order);
  bool improved = true;
  for (int pass = 0; improved && pass < kMaxSwapPasses; ++pass) {
    improved = false;
    for (size_t i = 0; i < order->size(); ++i) {
      for (size_t j = i + 1; j < order->size(); ++j) {
        std::swap((*order)[i], (*order)[j]);
        const double time = Time(micro_batches, *order);
        if (time < best) {
          best = time;
          improved = true;
        } else {
          std::swap((*order)[i], (*order)[j]);
        }
      }
    }
  }
}

}  // namespace

std::vector<uint32_t> PipelineOrder(
    const std::vector<StageTimes>& micro_batches) {
  std::vector<uint32_t> as_given(micro_batches.size());
  std::iota(as_given.begin(), as_given.end(), 0);
  if (micro_batches.size() < 2) return as_given;

  std::vector<uint32_t> ascending = as_given;
  std::stable_sort(ascending.begin(), ascending.end(),
                   [&](uint32_t a, uint32_t b) {
                     return micro_batches[a][0] < micro_batches[b][0];
                   });
  const size_t rear =
      std::min(micro_batches[0].size() - 1, micro_batches.size() - 1);
  const auto rear_begin = ascending.begin() + 1;
  const auto rear_end = rear_begin + rear;
  std::vector<uint32_t> middle(rear_end, ascending.end());
  std::reverse(middle.begin(), middle.end());

  std::vector<std::vector<uint32_t>> candidates = {as_given};
  std::vector<uint32_t> descending = {ascending.front()};
  descending.insert(descending.end(), middle.begin(), middle.end());
  candidates.push_back(descending);
  if (micro_batches.size() <= kMaxFitted) {
    candidates.push_back(Fit(micro_batches, {ascending.front()}, middle));
  }
  for (size_t c = 1; c < candidates.size(); ++c) {
    // In descending order, so that the smallest is last.
    candidates[c].insert(candidates[c].end(),
                         std::make_reverse_iterator(rear_end),
                         std::make_reverse_iterator(rear_begin));
  }
  // The first among equals, so that nothing moves without a gain.
  std::vector<uint32_t> best = *std::min_element(
      candidates.begin(), candidates.end(),
      [&](const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
        return Time(micro_batches, a) < Time(micro_batches, b);
      });
  if (best.size() <= kMaxSwapped) SwapPairs(micro_batches, &best);
  return best;
}

}  // namespace ballast
