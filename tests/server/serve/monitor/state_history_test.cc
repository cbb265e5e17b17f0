#include "server/serve/monitor/state_history.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <gtest/gtest.h>

#include "server/serve/monitor/balance_board.h"
#include "server/serve/monitor/server_state.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

// The value of a column.
double Of(const HistoryPoint& point, const char* column) {
  const auto found = std::find_if(
      HistoryPoint::kColumns.begin(), HistoryPoint::kColumns.end(),
      [column](const char* name) { return std::strcmp(name, column) == 0; });
  EXPECT_NE(found, HistoryPoint::kColumns.end()) << column;
  return point.values[found - HistoryPoint::kColumns.begin()];
}

TEST(PointOfTest, SumsWhatAColumnMeans) {
  FamilyList list;
  list.Begin("ballast_images_total", FamilyList::kCounter, "");
  list.Add(3, {{"use", "vision"}});
  list.Add(40, {{"use", "encoded"}});
  list.Add(500, {{"use", "check"}});
  DurationHistogram wait;
  wait.Record(absl::Seconds(2));
  wait.Record(absl::Seconds(3));
  DurationHistogram pack;
  pack.Record(absl::Seconds(9));
  list.Begin("ballast_rank_seconds", FamilyList::kHistogram, "");
  list.Add(wait.Read(), {{"module", "vision"}, {"phase", "wait"}});
  list.Add(wait.Read(), {{"module", "language"}, {"phase", "wait"}});
  list.Add(pack.Read(), {{"module", "vision"}, {"phase", "pack"}});
  list.Begin("ballast_balance_spread_ratio", FamilyList::kGauge, "");
  list.Add(1.9, {{"module", "vision"}, {"when", "before"}});
  list.Add(1.1, {{"module", "vision"}, {"when", "after"}});
  const HistoryPoint point = GetPoint(std::move(list).Take(), 17.5);
  EXPECT_EQ(point.seconds, 17.5);
  EXPECT_EQ(Of(point, "images"), 43);
  EXPECT_NEAR(Of(point, "wait_seconds"), 10, 1e-6);
  EXPECT_EQ(Of(point, "spread_vision"), 1.1);
  // What a server does not have is not zero.
  for (const char* column : {"train_seconds", "step", "spread_language"}) {
    EXPECT_TRUE(std::isnan(Of(point, column))) << column;
  }
}

TEST(StateHistoryTest, LooksEveryFiveSeconds) {
  ManualClock clock;
  double step = 0;
  const auto metrics = [&step] {
    FamilyList list;
    list.Begin("ballast_step", FamilyList::kGauge, "");
    list.Add(step++);
    return std::move(list).Take();
  };
  const auto history = StateHistory::Start(
      metrics, absl::UnixEpoch() + absl::Seconds(1000), &clock);
  ASSERT_TRUE(history.ok()) << history.status();
  for (int i = 0; i < 3; ++i) {
    clock.AwaitSleepers(1);
    clock.Advance(absl::Seconds(5));
  }
  clock.AwaitSleepers(1);
  const auto points = (*history)->Points(absl::Minutes(1), 100);
  ASSERT_EQ(points.size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(points[i].seconds, 1000 + 5 * i);
    EXPECT_EQ(Of(points[i], "step"), i);
  }
  EXPECT_EQ((*history)->start_seconds(), 1000);
}

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

TEST(EncodedImagesTest, CountsEveryMark) {
  ImageMarkCounts counts;
  counts.Add(ImageMark::Marked(700, ImageCheckResult::kClean));
  counts.Add(ImageMark::Marked(700, ImageCheckResult::kClean));
  counts.Add(ImageMark::Marked(800, ImageCheckResult::kUnsound));
  counts.Add(ImageMark::Marked(800, ImageCheckResult::kChanged));
  counts.Add(ImageMark::Marked(900));
  counts.Add(ImageMark());
  counts.Add(ImageMark::Refused(EngineRefusal::kProcess));
  const auto images = GetEncodedImages("docs", counts);
  EXPECT_EQ(images.source(), "docs");
  EXPECT_EQ(images.images(), 7);
  EXPECT_EQ(images.clean(), 2);
  EXPECT_EQ(images.unsound(), 1);
  EXPECT_EQ(images.changed(), 1);
  EXPECT_EQ(images.unchecked(), 1);
  ASSERT_EQ(images.refusals_size(), 2);
  EXPECT_EQ(images.refusals(0).reason(), "not judged");
  EXPECT_EQ(images.refusals(1).reason(), "not baseline of 8 bits");
  EXPECT_EQ(images.refusals(1).images(), 1);
}

}  // namespace
}  // namespace ballast
