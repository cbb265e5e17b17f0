#ifndef BALLAST_COMMON_INSTRUMENTS_H_
#define BALLAST_COMMON_INSTRUMENTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace ballast {

// Counters and histograms that cost the counting thread a few nanoseconds: each
// thread adds to its shard with relaxed atomics, and a reader sums the shards.
// No locks, no allocation. A value that is read during counting may miss
// additions in progress, also for only some of several related values, but
// never decreases. Thread-safe.

// Index of the shard, of `shards`, that this thread adds to.
size_t ShardOfThread(size_t shards);

inline constexpr size_t kInstrumentShards = 16;

class Counter {
 public:
  void Add(uint64_t amount = 1) {
    shards_[ShardOfThread(kInstrumentShards)].value.fetch_add(
        amount, std::memory_order_relaxed);
  }
  uint64_t value() const;

 private:
  struct alignas(64) Shard {
    std::atomic<uint64_t> value = 0;
  };
  std::array<Shard, kInstrumentShards> shards_;
};

// Durations in buckets of 10 microseconds to a minute.
class DurationHistogram {
 public:
  // Upper bounds of the buckets, inclusive, in seconds, ascending; one more
  // bucket holds longer durations.
  static absl::Span<const double> Bounds();
  static constexpr size_t kBuckets = 22;

  // A negative duration counts as 0.
  void Record(absl::Duration duration);

  struct Snapshot {
    // Durations in each bucket, not cumulative.
    std::array<uint64_t, kBuckets> counts = {};
    double sum = 0;  // seconds

    uint64_t count() const;
    // The q-quantile (0 to 1) in seconds, interpolated within its bucket; the
    // last bound for durations beyond it; 0 without durations.
    double Quantile(double q) const;
  };
  Snapshot Read() const;

 private:
  struct alignas(64) Shard {
    std::array<std::atomic<uint64_t>, kBuckets> counts = {};
    std::atomic<uint64_t> nanoseconds = 0;
  };
  std::array<Shard, kInstrumentShards> shards_;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_INSTRUMENTS_H_
