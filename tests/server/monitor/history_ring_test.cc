#include "server/monitor/state_history.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

constexpr double kStep = 5;  // seconds between points

// A ring after `n` points, of which point i is at i * kStep and holds i.
HistoryRing Filled(int n) {
  HistoryRing ring;
  for (int i = 0; i < n; ++i) {
    HistoryPoint point;
    point.seconds = i * kStep;
    point.values.fill(i);
    ring.Add(point);
  }
  return ring;
}

TEST(HistoryRingTest, IsEmptyAtFirst) {
  EXPECT_TRUE(HistoryRing().Points(absl::Hours(1), 100).empty());
}

TEST(HistoryRingTest, GivesEveryPointOfAShortRange) {
  const std::vector<HistoryPoint> points =
      Filled(2000).Points(absl::Minutes(1), 100);
  ASSERT_EQ(points.size(), 13);  // a minute of 5 s, with both ends
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].seconds, (1987 + i) * kStep);
    EXPECT_EQ(points[i].values[0], 1987 + i);
  }
}

TEST(HistoryRingTest, ThinsEvenlyAndKeepsTheLast) {
  const std::vector<HistoryPoint> points =
      Filled(5000).Points(absl::Hours(1), 100);
  // 720 points by 8.
  ASSERT_EQ(points.size(), 90);
  EXPECT_EQ(points.back().values[0], 4999);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_EQ(points[i].values[0] - points[i - 1].values[0], 8);
  }
}

TEST(HistoryRingTest, AYoungServerHasEveryPointForALongRange) {
  EXPECT_EQ(Filled(720).Points(absl::Hours(24), 1000).size(), 720);
  // Once the first are gone, minutes.
  EXPECT_EQ(Filled(721).Points(absl::Hours(24), 1000).size(), 61);
}

TEST(HistoryRingTest, KeepsADayByTheMinuteAndNoMore) {
  constexpr int kDays = 3 * 17280;  // points of three days
  const std::vector<HistoryPoint> points =
      Filled(kDays + 7).Points(absl::Hours(24), 100'000);
  // Every twelfth, and the last.
  ASSERT_EQ(points.size(), 1441);
  EXPECT_EQ(points.back().values[0], kDays + 6);
  EXPECT_EQ(points[1439].values[0], kDays);
  EXPECT_EQ(points[0].values[0], kDays - 12 * 1439);
  EXPECT_EQ(Filled(kDays).Points(absl::Hours(1), 100'000).size(), 720);
}

}  // namespace
}  // namespace ballast
