#include "server/http/status_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/monitor/server_state.h"
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

using nlohmann::json;

TEST(PageJsonTest, ShowsAnIdleServer) {
  const json page = json::parse(PageJson({}, {}, nullptr, {}));
  EXPECT_TRUE(page["step"].is_null());
  EXPECT_TRUE(page["balance"].is_null());
  EXPECT_TRUE(page["history"].empty());
  EXPECT_EQ(page["clients_total"], 0);
}

TEST(PageJsonTest, ListsNumbersAndTimesByName) {
  FamilyList list;
  list.Begin("a_total", FamilyList::kCounter, "");
  list.Add(3, {{"way", "stream"}, {"module", "vision"}});
  DurationHistogram histogram;
  for (int i = 0; i < 4; ++i) histogram.Record(absl::Milliseconds(2));
  list.Begin("b_seconds", FamilyList::kHistogram, "");
  list.Add(histogram.Read());
  const json page =
      json::parse(PageJson({}, std::move(list).Take(), nullptr, {}));
  EXPECT_EQ(page["numbers"]["a_total way=stream module=vision"], 3);
  const json& times = page["times"][0];
  EXPECT_EQ(times["name"], "b_seconds");
  EXPECT_EQ(times["count"], 4);
  EXPECT_DOUBLE_EQ(times["sum"].get<double>(), 0.008);
  EXPECT_DOUBLE_EQ(times["p50"].get<double>(), 0.00175);
}

// 1000 ranks in bars of four: each shows the largest load.
TEST(PageJsonTest, BarsAreBounded) {
  v1::StepBalance balance;
  balance.set_step(9);
  v1::ModuleBalance& vision = *balance.add_modules();
  vision.set_module(v1::MODULE_VISION);
  for (int r = 0; r < 1000; ++r) {
    vision.add_load_before(r);
    vision.add_load_after(1000 - r);
  }
  const auto past = std::make_shared<const v1::StepBalance>(balance);
  const json page = json::parse(PageJson({}, {}, &balance, {past, past}));
  const json& module = page["balance"]["modules"][0];
  EXPECT_EQ(module["ranks"], 1000);
  EXPECT_EQ(module["ranks_a_bar"], 4);
  ASSERT_EQ(module["before"].size(), 250u);
  EXPECT_EQ(module["before"][1], 7);
  EXPECT_EQ(module["after"][1], 996);
  EXPECT_EQ(page["history"].size(), 2u);
  EXPECT_FALSE(page["history"][0]["modules"][0].contains("before"));
}

TEST(PageJsonTest, BoundsListsAndReplacesHostileNames) {
  v1::GetStatusResponse status;
  for (int i = 0; i < 500; ++i) {
    auto* bad = status.add_bad_samples();
    bad->set_file("</script><img src=x onerror=alert(1)>\xff");
    bad->set_reason("\"quoted\"\n");
    status.add_clients()->set_lag(i);
    status.add_stalls();
  }
  const json page = json::parse(PageJson(status, {}, nullptr, {}));
  EXPECT_EQ(page["bad_samples"].size(), 100u);
  EXPECT_EQ(page["bad_samples_total"], 500);
  EXPECT_EQ(page["clients"].size(), 100u);
  EXPECT_EQ(page["stalls"].size(), 100u);
  EXPECT_EQ(page["bad_samples"][0]["reason"], "\"quoted\"\n");
}

}  // namespace

}  // namespace ballast
