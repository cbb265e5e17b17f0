#include "server/http/history_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

TEST(HistoryJsonTest, NamesItsColumns) {
  ManualClock clock;
  const auto history = StateHistory::Start(
      [] {
        v1::MetricFamily step;
        step.set_name("ballast_step");
        step.add_metrics()->set_number(7);
        return std::vector<v1::MetricFamily>{step};
      },
      absl::UnixEpoch() + absl::Seconds(50), &clock);
  ASSERT_TRUE(history.ok()) << history.status();
  // A name may be any bytes.
  const auto json = nlohmann::json::parse(
      HistoryJson("node-\xFF", **history, absl::Hours(1)));
  EXPECT_EQ(json["ballast_history"], 1);
  EXPECT_EQ(json["server"], "node-\xEF\xBF\xBD");
  EXPECT_EQ(json["start"], 50);
  EXPECT_EQ(json["columns"].size(), 1 + HistoryPoint::kColumns.size());
  EXPECT_EQ(json["columns"][0], "seconds");
  EXPECT_EQ(json["columns"][1], "step");
  ASSERT_EQ(json["points"].size(), 1);
  ASSERT_EQ(json["points"][0].size(), json["columns"].size());
  EXPECT_EQ(json["points"][0][0], 50);
  EXPECT_EQ(json["points"][0][1], 7);
  EXPECT_TRUE(json["points"][0][2].is_null());
}

}  // namespace
}  // namespace ballast
