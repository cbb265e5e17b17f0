#include "server/schedule/cost_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

namespace ballast {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;
// Fewer costs are sorted by comparisons.
constexpr size_t kFew = 512;

struct Entry {
  uint64_t below = 0;  // the largest cost less this one
  uint32_t index = 0;
};

}  // namespace

std::vector<uint32_t> CostliestFirst(const std::vector<int64_t>& costs) {
  std::vector<uint32_t> order(costs.size());
  if (costs.size() < kFew) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return costs[a] > costs[b];
    });
    return order;
  }
  const auto [least, largest] = std::minmax_element(costs.begin(), costs.end());
  std::vector<Entry> entries(costs.size()), sorted(costs.size());
  for (uint32_t i = 0; i < costs.size(); ++i) {
    entries[i] = {static_cast<uint64_t>(*largest - costs[i]), i};
  }
  // By digits, the lowest first; each pass keeps the order of the last.
  const int bits = std::bit_width(static_cast<uint64_t>(*largest - *least));
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    std::array<uint32_t, kDigits> next = {};
    const auto digit = [&](const Entry& entry) {
      return entry.below >> shift & (kDigits - 1);
    };
    for (const Entry& entry : entries) ++next[digit(entry)];
    uint32_t first = 0;
    for (uint32_t& each : next) first += std::exchange(each, first);
    for (const Entry& entry : entries) sorted[next[digit(entry)]++] = entry;
    std::swap(entries, sorted);
  }
  for (size_t k = 0; k < order.size(); ++k) order[k] = entries[k].index;
  return order;
}

}  // namespace ballast
