#include "common/instruments.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace ballast {
namespace {

constexpr double kBounds[] = {1e-5,   2.5e-5, 5e-5, 1e-4,   2.5e-4, 5e-4, 1e-3,
                              2.5e-3, 5e-3,   1e-2, 2.5e-2, 5e-2,   0.1,  0.25,
                              0.5,    1.0,    2.5,  5.0,    10.0,   25.0, 60.0};
static_assert(std::size(kBounds) + 1 == DurationHistogram::kBuckets);

// Whole nanoseconds, so that no rounding moves a duration across a bound.
constexpr auto kNanoseconds = [] {
  std::array<int64_t, std::size(kBounds)> bounds = {};
  for (size_t i = 0; i < bounds.size(); ++i) {
    bounds[i] = static_cast<int64_t>(kBounds[i] * 1e9 + 0.5);
  }
  return bounds;
}();

}  // namespace

size_t ShardOfThread(size_t shards) {
  static std::atomic<size_t> next = 0;
  thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine % shards;
}

uint64_t Counter::value() const {
  uint64_t sum = 0;
  for (const Shard& shard : shards_) {
    sum += shard.value.load(std::memory_order_relaxed);
  }
  return sum;
}

absl::Span<const double> DurationHistogram::Bounds() { return kBounds; }

void DurationHistogram::Record(absl::Duration duration) {
  const int64_t nanoseconds =
      std::max<int64_t>(absl::ToInt64Nanoseconds(duration), 0);
  const size_t bucket =
      std::lower_bound(kNanoseconds.begin(), kNanoseconds.end(), nanoseconds) -
      kNanoseconds.begin();
  Shard& shard = shards_[ShardOfThread(kInstrumentShards)];
  shard.counts[bucket].fetch_add(1, std::memory_order_relaxed);
  shard.nanoseconds.fetch_add(nanoseconds, std::memory_order_relaxed);
}

DurationHistogram::Snapshot DurationHistogram::Read() const {
  Snapshot snapshot;
  uint64_t nanoseconds = 0;
  for (const Shard& shard : shards_) {
    for (size_t i = 0; i < kBuckets; ++i) {
      snapshot.counts[i] += shard.counts[i].load(std::memory_order_relaxed);
    }
    nanoseconds += shard.nanoseconds.load(std::memory_order_relaxed);
  }
  snapshot.sum = static_cast<double>(nanoseconds) * 1e-9;
  return snapshot;
}

uint64_t DurationHistogram::Snapshot::count() const {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

double DurationHistogram::Snapshot::Quantile(double q) const {
  const double wanted = q * static_cast<double>(count());
  double before = 0;
  for (size_t i = 0; i + 1 < kBuckets; ++i) {
    const double here = static_cast<double>(counts[i]);
    if (here > 0 && before + here >= wanted) {
      const double low = i == 0 ? 0 : kBounds[i - 1];
      return low + (kBounds[i] - low) * (wanted - before) / here;
    }
    before += here;
  }
  return count() == 0 ? 0 : kBounds[std::size(kBounds) - 1];
}

}  // namespace ballast
