#include "server/monitor/state_history.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "server/monitor/server_state.h"
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

}  // namespace
}  // namespace ballast
