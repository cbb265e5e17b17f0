#include "server/command/preview/gallery.h"

#include <numeric>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(HistogramTest, HasEveryValueAndAtMostTwentyFourCounts) {
  EXPECT_TRUE(MakeHistogram({}).counts.empty());
  EXPECT_EQ(MakeHistogram({0, 0}).counts, std::vector<uint64_t>{2});
  EXPECT_EQ(MakeHistogram({0, 3, 3}).counts,
            (std::vector<uint64_t>{1, 0, 0, 2}));
  for (const uint64_t most : {23, 24, 25, 1000, 1'000'000}) {
    const Histogram histogram = MakeHistogram({0, most / 2, most});
    EXPECT_LE(histogram.counts.size(), 24u) << most;
    EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(),
                              uint64_t{0}),
              3u);
    EXPECT_EQ(histogram.counts[most / histogram.width], 1u) << most;
  }
}

}  // namespace
}  // namespace ballast
