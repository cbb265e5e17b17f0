// The views of `balance`, `metrics`, `status` and `top` over made-up answers.
#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/ballastctl/commands.h"
#include "client/ballastctl/quantities.h"
#include "common/clock.h"
#include "common/instruments.h"

namespace ballast {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(QuantitiesTest, AreShortAndHaveUnits) {
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

TEST(BalanceViewTest, ColumnsOfDifferentLengthsAreSafe) {
  v1::StepBalance balance = Balance(2);
  balance.mutable_modules(0)->clear_bytes_in();
  balance.mutable_modules(0)->mutable_load_before()->Truncate(1);
  EXPECT_THAT(BalanceTable(balance), HasSubstr("1.250"));
  Snapshot now;
  now.balance = balance;
  EXPECT_THAT(TopView(now, nullptr, {.lines = 50}), HasSubstr("vision"));
}

TEST(BalanceViewTest, TopShowsAllModulesOfARankTogether) {
  Snapshot now;
  now.balance = Balance(2);
  const std::string alone = TopView(now, nullptr, {.lines = 50});
  EXPECT_THAT(alone, Not(HasSubstr("all modules")));
  v1::ModuleBalance& language = *now.balance->add_modules();
  language.set_module(v1::MODULE_LANGUAGE);
  language.set_spread_before(2);
  now.balance->set_spread_before(1);
  now.balance->set_spread_after(1.5);
  EXPECT_THAT(TopView(now, nullptr, {.lines = 50}),
              HasSubstr("all modules: heaviest rank over mean 1.000 as read, "
                        "1.500 as trained"));
  now.balance->clear_spread_after();  // modules that differ in ranks
  EXPECT_THAT(TopView(now, nullptr, {.lines = 50}),
              Not(HasSubstr("all modules")));
}

TEST(BalanceViewTest, AModuleWithoutLoadAndMovesSaysSo) {
  v1::StepBalance balance = Balance(0);
  v1::ModuleBalance& language = *balance.add_modules();
  language.set_module(v1::MODULE_LANGUAGE);
  const std::string table = BalanceTable(balance);
  EXPECT_THAT(table, HasSubstr("3, 1.00 KiB     none\n"));
  EXPECT_THAT(table, HasSubstr("language: no load in this step"));
  EXPECT_THAT(table, Not(HasSubstr("vision: no load")));
}

void AddMetric(v1::MetricFamily* family, const std::string& label,
               const std::string& value, double number) {
  v1::MetricFamily::Metric* metric = family->add_metrics();
  if (!label.empty()) {
    metric->add_labels()->set_name(label);
    metric->mutable_labels(0)->set_value(value);
  }
  metric->set_number(number);
}

TEST(MetricsViewTest, LabelsAreListedBelowTheirFamily) {
  v1::GetStatsResponse stats;
  v1::MetricFamily* bad = stats.add_families();
  bad->set_name("ballast_bad_samples");
  AddMetric(bad, "source", "", 0);
  AddMetric(bad, "source", "docs\x1b", 7);
  v1::MetricFamily* memory = stats.add_families();
  memory->set_name("ballast_memory_limit_bytes");
  AddMetric(memory, "", "", 1 << 30);
  v1::MetricFamily* times = stats.add_families();
  times->set_name("ballast_stage_seconds");
  v1::MetricFamily::Metric* decode = times->add_metrics();
  decode->add_labels()->set_name("stage");
  decode->mutable_labels(0)->set_value("decode");
  v1::MetricFamily::Histogram* histogram = decode->mutable_histogram();
  for (const double bound : DurationHistogram::Bounds()) {
    histogram->add_bounds(bound);
    histogram->add_counts(3);
  }
  histogram->add_counts(0);
  const std::vector<std::string> lines =
      absl::StrSplit(MetricsTable(stats), '\n');
  ASSERT_EQ(lines.size(), 2 + 6 + 1u);
  EXPECT_EQ(lines[2], "ballast_bad_samples");
  EXPECT_THAT(lines[3], ContainsRegex("^  source=\"\" +0$"));
  EXPECT_THAT(lines[4], ContainsRegex("^  source=docs.x1b +7$"));
  EXPECT_THAT(lines[5],
              ContainsRegex("^ballast_memory_limit_bytes +1.00 GiB$"));
  EXPECT_EQ(lines[6], "ballast_stage_seconds");
  EXPECT_THAT(lines[7], ContainsRegex(absl::StrCat(
                            "^  stage=decode +",
                            3 * DurationHistogram::Bounds().size(), " .* s$")));
}

TEST(ViewTest, BreaksAtSpacesAndKeepsPathsWhole) {
  View view;
  const std::string path = "/" + std::string(90, 'p');
  view.AddWrapped(4, "  a sample " + path + " at byte 7");
  view.AddField("key", std::string(60, 'v') + " and more");
  EXPECT_EQ(std::move(view).Take(),
            "  a sample\n    " + path + "\n    at byte 7\nkey          " +
                std::string(60, 'v') + " and\n             more\n");
}

// A busy server whose strings are as long and hostile as possible.
Snapshot Busy(double images) {
  Snapshot now;
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

void ExpectFits(const std::string& view, int lines, size_t columns) {
  const std::vector<std::string> shown = absl::StrSplit(view, '\n');
  EXPECT_LE(shown.size(), lines + 1u);  // the last is empty
  for (const std::string& line : shown) EXPECT_LE(line.size(), columns) << line;
  EXPECT_THAT(view, Not(HasSubstr("\x1b")));
}

void SetNumber(const std::string& name, double number, Snapshot* now) {
  v1::MetricFamily* const family = now->stats.add_families();
  family->set_name(name);
  family->add_metrics()->set_number(number);
}

Snapshot LoaderAt(double seconds, double sent) {
  Snapshot now;
  now.at = absl::UnixEpoch() + absl::Seconds(seconds);
  SetNumber("ballast_sent_bytes_total", sent, &now);
  auto* const label =
      now.stats.mutable_families(0)->mutable_metrics(0)->add_labels();
  label->set_name("way");
  label->set_value("stream");
  SetNumber("ballast_workers", 16, &now);
  SetNumber("ballast_wanted_workers", 24, &now);
  return now;
}

TEST(TierTextTest, ShowsSharesOfServersAndWhoWaitsForWhom) {
  std::vector<TierServer> servers(3);
  servers[0].address = "10.0.0.5:7070";
  servers[1].address = "10.0.0.6:7070";
  servers[2].address = "10.0.0.7:7070";
  servers[0].before = LoaderAt(0, 0);
  servers[0].now = LoaderAt(2, 300 << 20);
  servers[1].before = LoaderAt(0, 1 << 30);
  servers[1].now = LoaderAt(2, (1 << 30) + (100 << 20));
  servers[2].before = LoaderAt(0, 0);
  servers[2].now = absl::UnavailableError("connection refused");
  for (int rank = 0; rank < 11; ++rank) {
    auto* const client = servers[1].now->status.add_clients();
    client->mutable_role()->set_module(v1::MODULE_VISION);
    client->mutable_role()->set_dp_rank(rank);
    client->set_seconds(rank);
    client->set_state(
        rank == 10 ? v1::GetStatusResponse::Client::STATE_SENDING
                   : v1::GetStatusResponse::Client::STATE_WAITS_FOR_BLOCK);
  }
  const std::string text = TierText(servers);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  EXPECT_THAT(lines[2], HasSubstr("10.0.0.5:7070"));
  EXPECT_THAT(lines[2], HasSubstr("150 MiB/s"));
  EXPECT_THAT(lines[2], HasSubstr(" 75 %"));
  EXPECT_THAT(lines[3], HasSubstr(" 25 %"));
  EXPECT_THAT(lines[3], HasSubstr(" 10 "));  // wait
  EXPECT_EQ(lines[4], "2 servers, 32 workers, 48 wanted");
  EXPECT_EQ(lines[5], "no answer: 10.0.0.7:7070: connection refused");
  // The longest first.
  EXPECT_THAT(lines[6], StartsWith("vision rank 9 has waited 9"));
  EXPECT_THAT(lines[6], HasSubstr("for 10.0.0.6:7070"));
  EXPECT_EQ(lines[14], "and 2 more wait, not as long");
}

TEST(TierTextTest, SaysThatNoServerAnswers) {
  std::vector<TierServer> servers(1);
  servers[0].address = "a:1";
  servers[0].now = absl::UnavailableError("refused");
  EXPECT_EQ(TierText(servers),
            "0 servers, 0 workers, 0 wanted\nno answer: a:1: refused\n");
}

TEST(TopViewTest, SaysHowManyClientsItLeavesOut) {
  Snapshot now;
  for (int i = 0; i < 8; ++i) {
    now.status.add_clients()->mutable_role()->set_dp_rank(i);
  }
  now.status.set_clients_total(11);
  const int all = 6 + 8 + 1;  // lines above, clients, the number of the others
  for (int lines = 8; lines <= all; ++lines) {
    const std::string view = TopView(now, nullptr, {.lines = lines});
    int shown = 0;
    for (const absl::string_view line : absl::StrSplit(view, '\n')) {
      shown += absl::StrContains(line, " net");
    }
    EXPECT_THAT(view, HasSubstr(absl::StrCat("and ", 11 - shown, " more, ")))
        << view;
  }
  EXPECT_THAT(TopView(now, nullptr, {}), HasSubstr("and 3 more, "));
}

TEST(TopViewTest, ColoursChangeNoCharacter) {
  const std::string view = TopView(Busy(0), nullptr, {.columns = 120});
  const std::string coloured = ColourView(view);
  EXPECT_NE(coloured, view);
  std::string plain = coloured;
  for (const char* code : {"\x1b[1;31m", "\x1b[1m", "\x1b[2m", "\x1b[m"}) {
    plain = absl::StrReplaceAll(plain, {{code, ""}});
  }
  EXPECT_EQ(plain, view);
}

TEST(TopViewTest, FitsTheTerminalAndAHundredAndSixtyColumns) {
  for (const int lines : {-1, 1, 10, 24, 100}) {
    for (const int columns : {0, 1, 20, 79, 80, 200}) {
      const size_t most = std::clamp(columns, 1, 160);
      const ViewSize size = {.lines = lines, .columns = columns};
      ExpectFits(TopView(Busy(0), nullptr, size), std::max(lines, 1), most);
      ExpectFits(OutageView("a\x1b[m", absl::Seconds(3),
                            std::string(500, 'r') + "\x1b[2J", size),
                 std::max(lines, 1), most);
    }
  }
}

TEST(TopViewTest, TimesOfRanksCoverAllModules) {
  Snapshot now;
  v1::MetricFamily& family = *now.stats.add_families();
  family.set_name("ballast_rank_seconds");
  const absl::Span<const double> bounds = DurationHistogram::Bounds();
  // Two values of vision in the lowest bucket, one of language in the highest.
  for (const std::string module : {"vision", "language"}) {
    for (const std::string phase : {"train", "exchange"}) {
      v1::MetricFamily::Metric& metric = *family.add_metrics();
      v1::MetricFamily::Label* label = metric.add_labels();
      label->set_name("module");
      label->set_value(module);
      label = metric.add_labels();
      label->set_name("phase");
      label->set_value(phase);
      v1::MetricFamily::Histogram& times = *metric.mutable_histogram();
      times.mutable_bounds()->Add(bounds.begin(), bounds.end());
      times.mutable_counts()->Resize(bounds.size() + 1, 0);
      if (module == "vision") {
        times.set_counts(0, 2);
      } else {
        times.set_counts(bounds.size(), 1);
      }
    }
  }
  const std::string view = TopView(now, nullptr, {});
  EXPECT_THAT(view, HasSubstr("rank exchange"));
  EXPECT_THAT(view, Not(HasSubstr("train")));
  DurationHistogram::Snapshot both;
  both.counts.front() = 2;
  both.counts.back() = 1;
  EXPECT_THAT(view, HasSubstr(SecondsText(both.Quantile(0.5))));
  EXPECT_THAT(view, HasSubstr(SecondsText(both.Quantile(0.99))));
}

// A clock whose sleeps end at once.
class HastyClock final : public Clock {
 public:
  absl::Time Now() override { return now_; }
  std::unique_ptr<Sleeper> NewSleeper() override {
    return std::make_unique<HastySleeper>(&now_);
  }

 private:
  class HastySleeper final : public Sleeper {
   public:
    explicit HastySleeper(absl::Time* now) : now_(now) {}
    bool Sleep(absl::Duration duration) override {
      *now_ += duration;
      return true;
    }
    void Wake() override {}

   private:
    absl::Time* const now_;
  };
  absl::Time now_ = absl::UnixEpoch();
};

// Runs `top` over `answers`, one per round, in a terminal that shrinks.
absl::Status RunAll(const std::vector<absl::Status>& answers,
                    std::ostream* out) {
  HastyClock clock;
  TopOptions options;
  options.server = "a:1";
  options.rounds = answers.size();
  int lines = 24;
  options.size = [&lines] { return ViewSize{.lines = lines--}; };
  size_t next = 0;
  return RunTop(
      [&]() -> absl::StatusOr<Snapshot> {
        const absl::Status answer = answers[next++];
        if (!answer.ok()) return answer;
        Snapshot now = Busy(100.0 * next);
        now.at = clock.Now();
        return now;
      },
      options, &clock, out);
}

TEST(RunTopTest, AServerThatGoesAwayIsAskedUntilItIsBack) {
  const absl::Status gone = absl::UnavailableError("server a:1: it is gone");
  std::ostringstream out;
  EXPECT_TRUE(RunAll({{}, {}, gone, gone, {}, {}}, &out).ok());
  EXPECT_THAT(out.str(), HasSubstr("images       50/s"));
  EXPECT_THAT(out.str(), HasSubstr("ballast a:1   no answer for 2.0 s; asking "
                                   "on\nserver a:1: it is gone\n"));
  EXPECT_THAT(out.str(), HasSubstr("no answer for 4.0 s"));
  // The first view after an outage has no rates: the time between is unknown.
  const std::vector<std::string> parts =
      absl::StrSplit(out.str(), "images        -/s");
  EXPECT_EQ(parts.size(), 3u);
}

TEST(RunTopTest, AWrongAddressOrARefusalEndsIt) {
  std::ostringstream out;
  EXPECT_TRUE(absl::IsUnavailable(
      RunAll({absl::UnavailableError("nobody there")}, &out)));
  EXPECT_EQ(out.str(), "");
  EXPECT_TRUE(absl::IsUnauthenticated(
      RunAll({{}, absl::UnauthenticatedError("no token")}, &out)));
}

TEST(TopViewTest, ShowsTheStepsTokensAndTheFillOfItsPacks) {
  Snapshot now;
  now.balance = Balance(0);
  now.balance->set_micro_batches(4);
  now.balance->mutable_totals()->set_tokens(30720);
  EXPECT_THAT(TopView(now, nullptr, {}), Not(HasSubstr("full")));
  now.balance->set_pack_room(32768);
  EXPECT_THAT(TopView(now, nullptr, {}),
              HasSubstr("in 4 micro-batches, packs 93.8 % full"));
}

TEST(ChangesTextTest, SaysWhichChangeHoldsAndWhenTheNextBegins) {
  v1::GetStatusResponse status;
  status.add_change_steps(8000);
  EXPECT_EQ(ChangesText(status), "number 1 begins at step 8000");
  status.set_current_step(7999);
  EXPECT_EQ(ChangesText(status), "number 1 begins at step 8000, in 1 step");
  status.set_current_step(8000);
  EXPECT_EQ(ChangesText(status), "1 of 1, from step 8000 on");
  status.add_change_steps(12000);
  status.add_change_steps(15000);
  status.set_current_step(11620);
  EXPECT_EQ(ChangesText(status),
            "1 of 3, from step 8000 on; number 2 begins at step 12000, in 380 "
            "steps");
}

TEST(StatusViewTest, SaysWhichStepsWaitForADecision) {
  ServerReport report;
  report.revisions.emplace();
  EXPECT_THAT(StatusText(report), Not(HasSubstr("waits")));
  EXPECT_FALSE(json::parse(StatusJson(report)).contains("waits_from"));
  report.revisions->set_decider("a:7070");
  report.revisions->mutable_prepared()->set_number(3);
  report.revisions->mutable_prepared()->set_first_step(12000);
  EXPECT_THAT(StatusText(report),
              HasSubstr("steps from 12000 on, until server a:7070 says"));
  EXPECT_EQ(json::parse(StatusJson(report))["waits_from"], 12000);
}

TEST(TopViewTest, RatesAreSinceTheViewBefore) {
  const Snapshot before = Busy(100);
  Snapshot now = Busy(400);
  now.at += absl::Seconds(2);
  EXPECT_THAT(TopView(now, nullptr, {}), HasSubstr("images        -/s"));
  EXPECT_THAT(TopView(now, &before, {}), HasSubstr("images      150/s"));
  // A restarted server counts from 0.
  EXPECT_THAT(TopView(Busy(0), &now, {}), HasSubstr("images        -/s"));
}

// The longest line that is not a single word.
size_t Widest(const std::string& text) {
  size_t widest = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    widest = std::max(widest, line.size());
  }
  return widest;
}

TEST(StatusViewTest, FitsEightyColumnsAndEndsItsLists) {
  ServerReport report;
  report.address = "127.0.0.1:7070";
  report.attach.set_server("node\x1b[31m");
  report.attach.set_refusal("server b " + std::string(60, 'd') + " differs");
  report.now = Busy(0);
  report.now->status.set_server("node");
  report.now->status.clear_stalls();
  for (int i = 0; i < 25; ++i) {
    auto* bad = report.now->status.add_bad_samples();
    bad->set_sample(absl::StrCat("docs:", i));
    bad->set_file("docs-0.tar");
    bad->set_reason("image 0: a JPEG whose data end within its second scan");
  }
  const std::string text = StatusText(report);
  EXPECT_LE(Widest(text), 80u) << text;
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("bad samples  25 of at most 0\n"));
  EXPECT_THAT(text, HasSubstr("docs:9, "));
  EXPECT_THAT(text, Not(HasSubstr("docs:10, ")));
  EXPECT_THAT(text, HasSubstr("  and 15 more: see --json\n"));
  EXPECT_THAT(
      text,
      HasSubstr("clients      40, the last 18446744073709551615 steps behind"));
  EXPECT_THAT(text, HasSubstr("and 32 more, not as far behind\n"));
  const json all = json::parse(StatusJson(report));
  EXPECT_EQ(all["bad_samples"].size(), 25u);
  EXPECT_EQ(all["clients"].size(), 40u);
  EXPECT_EQ(all["clients"][0]["state"], "holds_back");
}

TEST(StatusViewTest, ShowsAServerBeforeTheFirstStepWithoutRates) {
  ServerReport report;
  report.now.emplace();
  EXPECT_THAT(StatusText(report), HasSubstr("none yet"));
  EXPECT_THAT(StatusText(report), Not(HasSubstr("images/s")));
  const json all = json::parse(StatusJson(report));
  EXPECT_FALSE(all.contains("step"));
  EXPECT_FALSE(all.contains("spread"));
  EXPECT_FALSE(all.contains("rates"));
  EXPECT_FALSE(all.contains("version"));
}

TEST(TopViewTest, BarsAreInProportion) {
  const std::string view = TopView(Busy(0), nullptr, {.lines = 100});
  EXPECT_THAT(view, HasSubstr("     0  " + std::string(26, '#') +
                              "      200  " + std::string(20, '#') + " "));
  EXPECT_THAT(view, HasSubstr("     1  " + std::string(13, '#') + " "));
  EXPECT_THAT(view, HasSubstr("and 32 more ranks"));
}

TEST(VideoFieldsTest, ShowsVideosAndWhyTheirDecodersEnded) {
  ServerReport report;
  report.now.emplace();
  EXPECT_THAT(StatusText(report), Not(HasSubstr("videos")));
  EXPECT_FALSE(json::parse(StatusJson(report)).contains("videos"));
  auto* videos = report.now->status.mutable_videos();
  videos->set_videos(1500);
  videos->set_frames(90'000);
  videos->set_videos_checked(10);
  videos->set_frames_checked(600);
  videos->set_decode_seconds(906);
  videos->set_decoder_starts(7);
  auto* end = videos->add_decoder_ends();
  end->set_reason("processor_time");
  end->set_count(3);
  const std::string text = StatusText(report);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 80u) << line;
  }
  // 906 s for 90,600 frames.
  EXPECT_THAT(text, HasSubstr("videos       1.50 k decoded, 90.0 k frames, "
                              "10.0 ms each\n"));
  EXPECT_THAT(text, HasSubstr("  10 checked, 600 frames"));
  EXPECT_THAT(text, HasSubstr("  7 decoder processes started\n"));
  EXPECT_THAT(text, HasSubstr("  3 of them ended: processor time\n"));
  EXPECT_EQ(json::parse(StatusJson(report))["videos"],
            (json{{"videos", 1500},
                  {"frames", 90'000},
                  {"videos_checked", 10},
                  {"frames_checked", 600},
                  {"decode_seconds", 906.0},
                  {"decoder_starts", 7},
                  {"decoder_ends", {{"processor_time", 3}}}}));
}

}  // namespace
}  // namespace ballast
