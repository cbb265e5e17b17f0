#include "proto/schedule/spread.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <xxhash.h>

namespace ballast {
namespace {

// 2^64 divided by the golden ratio.
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

uint64_t RoleHash(const v1::Role& role, uint64_t seed) {
  const uint64_t words[] = {static_cast<uint64_t>(role.split()),
                            static_cast<uint64_t>(role.module()),
                            role.dp_rank()};
  return XXH3_64bits_withSeed(words, sizeof(words), seed);
}

// The part `weight` / `all` of [first, last], rounded down.
uint64_t PartOf(uint64_t first, uint64_t last, uint64_t weight, uint64_t all) {
  using Wide = unsigned __int128;
  return static_cast<uint64_t>((Wide{last - first} + 1) * weight / all);
}

// Adds what `server` leaves, divided among those that are present.
void AddDivided(const CircleRange& range,
                absl::Span<const SpreadServer> servers, uint64_t present,
                std::vector<CircleRange>* divided) {
  uint64_t first = range.first;
  uint64_t weights = 0;
  for (size_t i = 0; i < servers.size(); ++i) {
    if (!servers[i].present) continue;
    weights += servers[i].weight;
    if (weights == present) {
      divided->push_back({first, range.last, i});
      return;
    }
    const uint64_t end =
        range.first + PartOf(range.first, range.last, weights, present);
    if (end == first) continue;
    divided->push_back({first, end - 1, i});
    first = end;
  }
}

}  // namespace

uint64_t BlockShare::PlaceOf(uint64_t step, uint32_t micro_batch) const {
  return offset + (step * stride + micro_batch) * kGolden;
}

bool BlockShare::Owns(uint64_t step, uint32_t micro_batch) const {
  const uint64_t place = PlaceOf(step, micro_batch);
  return std::any_of(parts.begin(), parts.end(), [&](const SharePart& part) {
    return part.first <= place && place <= part.last &&
           std::tie(part.step, part.micro_batch) <= std::tie(step, micro_batch);
  });
}

std::vector<CircleRange> DivideCircle(absl::Span<const SpreadServer> servers) {
  std::vector<CircleRange> ranges;
  uint64_t all = 0;
  uint64_t present = 0;
  for (size_t i = 0; i < servers.size(); ++i) {
    const uint64_t weight = servers[i].weight;
    if (servers[i].present) present += weight;
    all += weight;
    if (i == 0) {
      ranges.push_back({0, UINT64_MAX, 0});
      continue;
    }
    std::vector<CircleRange> taken;
    for (CircleRange& range : ranges) {
      const uint64_t part = PartOf(range.first, range.last, weight, all);
      if (part == 0 || part > range.last - range.first) continue;
      taken.push_back({range.last - part + 1, range.last, i});
      range.last -= part;
    }
    ranges.insert(ranges.end(), taken.begin(), taken.end());
  }
  if (present == 0) return {};
  std::vector<CircleRange> divided;
  for (const CircleRange& range : ranges) {
    if (servers[range.server].present) {
      divided.push_back(range);
    } else {
      AddDivided(range, servers, present, &divided);
    }
  }
  std::sort(divided.begin(), divided.end(),
            [](const CircleRange& a, const CircleRange& b) {
              return a.first < b.first;
            });
  return divided;
}

uint64_t CircleOffset(const v1::Role& role) { return RoleHash(role, 0); }

std::vector<size_t> PreferServers(const v1::Role& role,
                                  absl::Span<const std::string> names) {
  std::vector<std::pair<uint64_t, size_t>> scores;
  for (size_t i = 0; i < names.size(); ++i) {
    scores.emplace_back(
        RoleHash(role, XXH3_64bits(names[i].data(), names[i].size())), i);
  }
  std::sort(scores.begin(), scores.end());
  std::vector<size_t> order;
  for (const auto& [score, server] : scores) order.push_back(server);
  return order;
}

}  // namespace ballast
