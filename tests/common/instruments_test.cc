#include "common/instruments.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(CounterTest, SumsAllThreadsAdditions) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 1; i <= 20; ++i) {
    threads.emplace_back([&counter, i] {
      for (int k = 0; k < 1000; ++k) counter.Add(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 1000u * 20 * 21 / 2);
}

TEST(DurationHistogramTest, BoundsAreInclusiveAndAscending) {
  const absl::Span<const double> bounds = DurationHistogram::Bounds();
  ASSERT_EQ(bounds.size() + 1, DurationHistogram::kBuckets);
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(bounds[i - 1], bounds[i]);
    }
    DurationHistogram at;
    at.Record(absl::Seconds(bounds[i]));
    EXPECT_EQ(at.Read().counts[i], 1u) << bounds[i];
    DurationHistogram above;
    above.Record(absl::Seconds(bounds[i]) + absl::Nanoseconds(2));
    EXPECT_EQ(above.Read().counts[i + 1], 1u) << bounds[i];
  }
}

TEST(DurationHistogramTest, CountsSumsAndCannotGoBelowZero) {
  DurationHistogram histogram;
  histogram.Record(absl::Milliseconds(30));
  histogram.Record(absl::Milliseconds(70));
  histogram.Record(-absl::Seconds(1));
  const DurationHistogram::Snapshot snapshot = histogram.Read();
  EXPECT_EQ(snapshot.count(), 3u);
  EXPECT_DOUBLE_EQ(snapshot.sum, 0.1);
  EXPECT_EQ(snapshot.counts[0], 1u);
}

TEST(DurationHistogramTest, QuantilesLieInTheirBucket) {
  DurationHistogram histogram;
  EXPECT_EQ(histogram.Read().Quantile(0.5), 0);
  for (int i = 0; i < 99; ++i) histogram.Record(absl::Milliseconds(2));
  histogram.Record(absl::Hours(1));
  const DurationHistogram::Snapshot snapshot = histogram.Read();
  // 99 of 100 in (1 ms, 2.5 ms]: the median is 50/99 of the way.
  EXPECT_NEAR(snapshot.Quantile(0.5), 0.001 + 0.0015 * 50 / 99, 1e-12);
  EXPECT_EQ(snapshot.Quantile(1), 60);
}

}  // namespace
}  // namespace ballast
