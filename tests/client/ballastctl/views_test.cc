// What `balance`, `metrics` and `top` show, of made-up answers.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "client/ballastctl/balance.h"
#include "client/ballastctl/quantities.h"
#include "client/ballastctl/top.h"

namespace ballast {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(QuantitiesTest, AreShortAndSayTheirUnit) {
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(1234), "1.23 k");
  EXPECT_EQ(CountText(0.5), "0.50");
  EXPECT_EQ(BytesText(1536), "1.50 KiB");
  EXPECT_EQ(BytesText(300e6), "286 MiB");
  EXPECT_EQ(SecondsText(0), "0");
  EXPECT_EQ(SecondsText(0.0000123), "12 us");
  EXPECT_EQ(SecondsText(0.0123), "12.3 ms");
  EXPECT_EQ(SecondsText(0.75), "750 ms");
  EXPECT_EQ(SecondsText(61), "61.0 s");
  EXPECT_EQ(SecondsText(3600), "60 min");
  EXPECT_EQ(RatioText(0), "-");
  EXPECT_EQ(RatioText(1.07), "1.070");
}

TEST(QuantitiesTest, NothingSteersTheTerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\r\n\x7f"), "a?[2Jb???");
}

v1::StepBalance Balance(int ranks) {
  v1::StepBalance balance;
  balance.set_step(12);
  balance.set_micro_batches(2);
  v1::ModuleBalance& vision = *balance.add_modules();
  vision.set_module(v1::MODULE_VISION);
  vision.set_spread_before(1.5);
  vision.set_spread_after(1.25);
  vision.set_samples(16);
  vision.set_bytes(4096);
  vision.mutable_within_servers()->set_samples(3);
  vision.mutable_within_servers()->set_bytes(1024);
  for (int r = 0; r < ranks; ++r) {
    vision.add_load_before(r == 0 ? 200 : 100);
    vision.add_load_after(150);
    vision.add_samples_out(1);
    vision.add_samples_in(2);
    vision.add_bytes_out(10);
    vision.add_bytes_in(20);
  }
  return balance;
}

TEST(BalanceViewTest, JsonHasTheKeysOfItsHelp) {
  const json step = json::parse(BalanceJson(Balance(2)));
  EXPECT_EQ(step["step"], 12);
  const json& vision = step["modules"]["vision"];
  EXPECT_EQ(vision["spread"], (json{{"before", 1.5}, {"after", 1.25}}));
  EXPECT_EQ(vision["within_servers"]["bytes"], 1024);
  EXPECT_EQ(vision["load"]["before"], (json{200.0, 100.0}));
  EXPECT_EQ(vision["bytes_in"], (json{20, 20}));
  EXPECT_FALSE(
      json::parse(BalanceJson(Balance(0)))["modules"]["vision"].contains(
          "load"));
}

TEST(BalanceViewTest, ColumnsOfDifferentLengthsDoNoHarm) {
  v1::StepBalance balance = Balance(2);
  balance.mutable_modules(0)->clear_bytes_in();
  balance.mutable_modules(0)->mutable_load_before()->Truncate(1);
  EXPECT_THAT(BalanceTable(balance), HasSubstr("1.250"));
  TopSnapshot now;
  now.balance = balance;
  EXPECT_THAT(TopView(now, nullptr, 50), HasSubstr("vision"));
}

// A busy server whose strings are as long and as hostile as they can be.
TopSnapshot Busy(double images) {
  TopSnapshot now;
  now.at = absl::UnixEpoch();
  now.status.set_server(std::string(200, 's') + "\x1b[31m");
  now.status.set_memory(uint64_t{8} << 30);
  now.status.set_current_step(123'456'789);
  now.status.set_clients_total(40);
  for (uint32_t r = 0; r < 40; ++r) {
    auto* client = now.status.add_clients();
    client->mutable_role()->set_module(v1::MODULE_LANGUAGE);
    client->mutable_role()->set_dp_rank(16'383);
    client->set_step(UINT64_MAX);
    client->set_lag(UINT64_MAX);
    client->set_seconds(1e9);
    client->set_held_bytes(UINT64_MAX);
    client->set_state(v1::GetStatusResponse::Client::STATE_HOLDS_BACK);
  }
  now.status.add_stalls()->set_sample(std::string(300, 'x'));
  v1::MetricFamily* family = now.stats.add_families();
  family->set_name("ballast_images_total");
  v1::MetricFamily::Metric* metric = family->add_metrics();
  metric->add_labels()->set_name("use");
  metric->mutable_labels(0)->set_value("vision");
  metric->set_number(images);
  now.balance = Balance(40);
  return now;
}

TEST(TopViewTest, FitsEightyColumnsAndTheLinesThatThereAre) {
  for (const int lines : {1, 10, 24, 100}) {
    const std::string view = TopView(Busy(0), nullptr, lines);
    const std::vector<std::string> shown = absl::StrSplit(view, '\n');
    EXPECT_LE(shown.size(), lines + 1u);  // the last is empty
    for (const std::string& line : shown) EXPECT_LE(line.size(), 80u) << line;
    EXPECT_THAT(view, Not(HasSubstr("\x1b")));
  }
}

TEST(TopViewTest, RatesAreThoseSinceTheViewBefore) {
  const TopSnapshot before = Busy(100);
  TopSnapshot now = Busy(400);
  now.at += absl::Seconds(2);
  EXPECT_THAT(TopView(now, nullptr, 24), HasSubstr("images        -/s"));
  EXPECT_THAT(TopView(now, &before, 24), HasSubstr("images      150/s"));
  // A server that began anew counts from 0.
  EXPECT_THAT(TopView(Busy(0), &now, 24), HasSubstr("images        -/s"));
}

TEST(TopViewTest, BarsAreInProportion) {
  const std::string view = TopView(Busy(0), nullptr, 100);
  EXPECT_THAT(view, HasSubstr("     0  " + std::string(24, '#') +
                              "      200  " + std::string(18, '#') + " "));
  EXPECT_THAT(view, HasSubstr("     1  " + std::string(12, '#') + " "));
  EXPECT_THAT(view, HasSubstr("and 32 more ranks"));
}

}  // namespace
}  // namespace ballast
