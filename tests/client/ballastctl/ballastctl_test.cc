// `status` and `schedule` against a scripted server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/ballastctl/commands.h"
#include "client/ballastctl/query_client.h"
#include "client/loader_client.h"
#include "proto/block/block_plan.h"
#include "proto/block/block_view.h"
#include "proto/schedule/schedule_table.h"
#include "tests/fakes/fake_loader_service.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

inline constexpr uint64_t kStep = 5;

// A scripted server, and the commands run against it.
class BallastctlTest : public ::testing::Test {
 protected:
  BallastctlTest() {
    v1::AttachResponse attach;
    attach.set_server("a.sock");
    attach.mutable_fingerprint()->set_hash(kSyntheticFingerprint);
    *attach.mutable_job() = SyntheticJobMessage(job_);
    attach.mutable_job()->mutable_model()->set_profile("qwen2_vl");
    geometry_ = {attach.job().model().patch(),
                 attach.job().model().position_axes()};
    server_->SetAttach(attach);
    server_->SetSchedule(
        [job = job_](uint64_t step) { return SyntheticSchedule(job, step); });
  }

  // The block that the schedule describes; all payload bytes are 7.
  std::vector<uint8_t> Block(uint64_t step, uint32_t micro_batch) {
    auto plan = PlanBlock(SyntheticSchedule(job_, step), micro_batch, role_,
                          job_.delivery, geometry_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<uint8_t> block(plan->bytes(), 7);
    WriteBlockTables(*plan, absl::MakeSpan(block));
    MarkPlaceholder(*plan, 0, absl::MakeSpan(block));
    return block;
  }

  FakeLoaderServer::PullScript ServeSteps(uint64_t steps) {
    return [this, steps](FakePull* pull) {
      for (uint64_t s = kStep; s < kStep + steps; ++s) {
        for (uint32_t m = 0; m < MicroBatchesOf(job_, s); ++m) {
          pull->SendBlock(s, m, Block(s, m));
        }
      }
      return absl::OkStatus();
    };
  }

  absl::Status Pull(uint64_t steps, bool as_json) {
    PullOptions options;
    options.role = role_;
    options.step = kStep;
    options.steps = steps;
    options.json = as_json;
    out_.str("");
    options.failover.silent_after = absl::InfiniteDuration();
    options.failover.slow_after = absl::InfiniteDuration();
    LoaderClient* const servers[] = {client_.get()};
    return PullBatches(servers, options, &clock_, &out_);
  }

  // `ballastctl status` with one snapshot, so without rates.
  absl::Status Status(bool as_json) {
    StatusOptions options;
    options.interval = absl::ZeroDuration();
    options.json = as_json;
    return PrintStatus(client_.get(), &metrics_, options, &clock_, &out_);
  }

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines = absl::StrSplit(out_.str(), '\n');
    EXPECT_EQ(lines.back(), "");
    lines.pop_back();
    return lines;
  }

  // Step 5 has three micro-batches and step 6 one.
  SyntheticJob job_ = {.dynamic = true};
  v1::Role role_ = [] {
    v1::Role role;
    role.set_module(v1::MODULE_VISION);
    role.set_dp_rank(1);
    return role;
  }();
  BlockGeometry geometry_;
  ManualClock clock_;
  const std::unique_ptr<FakeLoaderServer> server_ = FakeLoaderServer::Start();
  const std::unique_ptr<LoaderClient> client_ =
      LoaderClient::Create(server_->address());
  QueryClient metrics_{server_->address()};
  std::ostringstream out_;
};

using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(BallastctlTest, StatusNamesFaults) {
  v1::GetStatusResponse state;
  state.set_memory(uint64_t{64} << 20);
  state.set_memory_in_use(uint64_t{3} << 20);
  state.set_open_streams(5);
  state.set_max_bad_samples(7);
  v1::GetStatusResponse::BadSample* bad = state.add_bad_samples();
  bad->set_sample("docs:17 (docs-0.tar: 000017)");
  bad->set_file("docs-0.tar");
  bad->set_offset(1536);
  bad->set_reason("image 0: truncated");
  bad->set_count(2);
  v1::GetStatusResponse::Stall* stall = state.add_stalls();
  stall->set_stage("reading images");
  stall->set_sample("docs:18");
  stall->set_file("docs-1.tar");
  stall->set_offset(512);
  stall->set_module(v1::MODULE_VISION);
  stall->set_position(99);
  stall->set_seconds(12.4);
  v1::GetStatusResponse::Problem* problem = state.add_problems();
  problem->set_kind("reads_fail");
  problem->set_subject("docs-2.tar");
  problem->set_text("cannot open; ranks that need it wait");
  problem->set_seconds(90);
  problem->set_count(12);
  server_->SetStatus(state);
  server_->SetStats({});

  ASSERT_TRUE(Status(true).ok());
  const json printed = json::parse(out_.str());
  EXPECT_EQ(printed["problems"],
            json::array({{{"kind", "reads_fail"},
                          {"subject", "docs-2.tar"},
                          {"text", "cannot open; ranks that need it wait"},
                          {"seconds", 90.0},
                          {"count", 12}}}));
  EXPECT_EQ(printed["memory"],
            json({{"in_use", 3 << 20}, {"idle", 0.0}, {"bound", 64 << 20}}));
  EXPECT_EQ(printed["open_streams"], 5);
  EXPECT_EQ(printed["max_bad_samples"], 7);
  EXPECT_EQ(printed["bad_samples"],
            json::array({{{"sample", "docs:17 (docs-0.tar: 000017)"},
                          {"file", "docs-0.tar"},
                          {"offset", 1536},
                          {"reason", "image 0: truncated"},
                          {"count", 2}}}));
  EXPECT_EQ(printed["stalls"], json::array({{{"stage", "reading images"},
                                             {"sample", "docs:18"},
                                             {"file", "docs-1.tar"},
                                             {"offset", 512},
                                             {"module", "vision"},
                                             {"position", 99},
                                             {"seconds", 12.4}}}));
  out_.str("");
  ASSERT_TRUE(Status(false).ok());
  for (const char* line :
       {"problem      reads_fail docs-2.tar for 90.0 s: cannot open; ranks "
        "that "
        "need it\n             wait\n",
        "memory       3.00 MiB of 64.0 MiB in blocks; 0 B idle\n",
        "bad samples  1 of at most 7\n  docs:17 (docs-0.tar: 000017), "
        "docs-0.tar at byte 1536, 2 times: image 0:\n    truncated\n",
        "stalls       1\n  reading images for 12.4 s: docs:18, docs-1.tar at "
        "byte 512, for vision\n    position 99\n"}) {
    EXPECT_THAT(out_.str(), HasSubstr(line));
  }
}

TEST_F(BallastctlTest, StatusCountsWhatTravelsEncoded) {
  v1::GetStatusResponse state;
  auto* source = state.add_encoded_images();
  source->set_source("docs");
  source->set_images(100);
  source->set_clean(90);
  source->set_unsound(3);
  auto* refusal = source->add_refusals();
  refusal->set_reason("not a JPEG");
  refusal->set_images(7);
  server_->SetStatus(state);
  server_->SetStats({});
  ASSERT_TRUE(Status(true).ok());
  EXPECT_EQ(json::parse(out_.str())["encoded_images"],
            json::array({{{"source", "docs"},
                          {"images", 100},
                          {"clean", 90},
                          {"unsound", 3},
                          {"changed", 0},
                          {"unchecked", 0},
                          {"refusals", {{"not a JPEG", 7}}}}}));
  out_.str("");
  ASSERT_TRUE(Status(false).ok());
  EXPECT_THAT(out_.str(), HasSubstr("encoded      docs: 90 of 100 images "
                                    "clean; 3 unsound, 7 not a JPEG\n"));
}

// Instruments of a server that has built `images`, four in ten of them sent
// encoded.
v1::GetStatsResponse StatsOf(double images) {
  v1::GetStatsResponse stats;
  const auto add = [&stats](const std::string& name, const std::string& label,
                            const std::string& value, double number) {
    v1::MetricFamily* family = stats.add_families();
    family->set_name(name);
    v1::MetricFamily::Metric* metric = family->add_metrics();
    if (!label.empty()) {
      metric->add_labels()->set_name(label);
      metric->mutable_labels(0)->set_value(value);
    }
    metric->set_number(number);
  };
  add("ballast_images_total", "use", "vision", 0.6 * images);
  add("ballast_images_total", "use", "encoded", 0.4 * images);
  add("ballast_sent_bytes_total", "way", "stream", images * (1 << 20));
  add("ballast_workers", "", "", 4);
  add("ballast_workers_busy", "", "", 3);
  add("ballast_samples_waiting", "", "", 17);
  add("ballast_blocks", "state", "ready", 2);
  add("ballast_blocks_reused_total", "", "", 9);
  add("ballast_memory_idle_bytes", "", "", 1 << 20);
  return stats;
}

TEST_F(BallastctlTest, StatusShowsTheStateOfTraining) {
  v1::GetStatusResponse state;
  state.set_version("0.9.0 (0123456789ab)");
  state.set_uptime_seconds(90);
  state.set_current_step(41);
  state.set_clients_total(1);
  v1::GetStatusResponse::Client* client = state.add_clients();
  *client->mutable_role() = role_;
  client->set_peer("ipv4:10.0.0.7:41234");
  client->set_step(40);
  client->set_micro_batch(1);
  client->set_lag(1);
  client->set_state(v1::GetStatusResponse::Client::STATE_WAITS_FOR_BLOCK);
  client->set_seconds(0.25);
  server_->SetStatus(state);
  server_->SetStats(StatsOf(100));
  v1::GetBalanceResponse balance;
  v1::ModuleBalance* vision = balance.add_steps()->add_modules();
  vision->set_module(v1::MODULE_VISION);
  vision->set_spread_before(1.5);
  vision->set_spread_after(1.25);
  balance.mutable_steps(0)->set_spread_before(1.75);
  balance.mutable_steps(0)->set_spread_after(1.0625);
  server_->SetBalance(balance);

  for (const bool as_json : {true, false}) {
    server_->SetStats(StatsOf(100));
    out_.str("");
    absl::Status status;
    std::thread printing([&] {
      StatusOptions options;
      options.interval = absl::Seconds(2);
      options.json = as_json;
      status = PrintStatus(client_.get(), &metrics_, options, &clock_, &out_);
    });
    clock_.AwaitSleepers(1);
    server_->SetStats(StatsOf(400));
    clock_.Advance(absl::Seconds(2));
    printing.join();
    ASSERT_TRUE(status.ok()) << status;
    if (as_json) {
      const json printed = json::parse(out_.str());
      EXPECT_EQ(printed["version"], "0.9.0 (0123456789ab)");
      EXPECT_EQ(printed["uptime_seconds"], 90);
      EXPECT_EQ(printed["step"], 41);
      EXPECT_EQ(printed["spread"]["vision"],
                (json{{"before", 1.5}, {"after", 1.25}}));
      EXPECT_EQ(printed["spread"]["all"],
                (json{{"before", 1.75}, {"after", 1.0625}}));
      EXPECT_EQ(printed["rates"]["images"], 150);
      EXPECT_EQ(printed["rates"]["images_encoded"], 60);
      EXPECT_EQ(printed["rates"]["sent_bytes"], 150 * (1 << 20));
      EXPECT_EQ(printed["workers"], (json{{"all", 4}, {"busy", 3}}));
      EXPECT_EQ(printed["queue"]["samples_waiting"], 17);
      EXPECT_EQ(printed["memory"]["idle"], 1 << 20);
      EXPECT_EQ(printed["cache"]["blocks_reused"], 9);
      EXPECT_EQ(printed["clients"][0]["module"], "vision");
      EXPECT_EQ(printed["clients"][0]["step"], 40);
      EXPECT_EQ(printed["clients"][0]["lag"], 1);
      EXPECT_EQ(printed["clients"][0]["state"], "waits_for_block");
      continue;
    }
    for (const char* line :
         {"version      0.9.0 (0123456789ab), up 90.0 s\n", "step         41\n",
          "rates        150 images/s (60 encoded), 0 tokens/s\n",
          "0 B/s of images read, 150 MiB/s sent\n",
          "queue        17 samples wait, 3 of 4 workers busy\n",
          "0 blocks in work, 2 ready\n", "cache        9 blocks used again",
          "clients      1, the last 1 steps behind the first\n",
          "vision 1               40.1       1  waits for a block    250 ms",
          "1.500    1.250", "all modules", "1.750    1.062"}) {
      EXPECT_THAT(out_.str(), HasSubstr(line));
    }
  }
}

TEST_F(BallastctlTest, StatusAsJson) {
  const absl::Status status = Status(true);
  ASSERT_TRUE(status.ok()) << status;
  const json printed = json::parse(out_.str());
  EXPECT_EQ(printed["server"], "a.sock");
  EXPECT_EQ(printed["address"], server_->address());
  EXPECT_EQ(printed["health"], "serving");
  EXPECT_EQ(printed["fingerprint"], kSyntheticFingerprint);
  EXPECT_EQ(printed["delivery"], "exchange");
  EXPECT_EQ(printed["modules"]["vision"]["dp"], 2);
  EXPECT_EQ(printed["modules"]["language"]["dp"], 2);
  EXPECT_EQ(printed["modules"]["language"]["align"], job_.align);
  // Two groups of three samples, two micro-batches.
  EXPECT_EQ(printed["batch"]["micro"], 6);
  EXPECT_EQ(printed["batch"]["global"], 12);
  EXPECT_EQ(printed["model"]["profile"], "qwen2_vl");
  EXPECT_EQ(printed["model"]["patch"], 4);
}

TEST_F(BallastctlTest, StatusForPeople) {
  server_->SetServing(false);
  ASSERT_TRUE(Status(false).ok());
  EXPECT_THAT(out_.str(), HasSubstr("not serving\n"));
  EXPECT_THAT(out_.str(), HasSubstr(kSyntheticFingerprint));
  EXPECT_THAT(out_.str(), HasSubstr("12 samples a step, 6 a micro-batch"));
  EXPECT_THAT(out_.str(), HasSubstr("language   2      4\n"));
}

TEST_F(BallastctlTest, StatusSaysWhyRanksAreRefused) {
  v1::AttachResponse attach = *client_->Attach({}, {});
  attach.set_refusal("server b differs");
  server_->SetAttach(attach);
  ASSERT_TRUE(Status(true).ok());
  EXPECT_EQ(json::parse(out_.str())["refusal"], "server b differs");
  out_.str("");
  ASSERT_TRUE(Status(false).ok());
  EXPECT_THAT(out_.str(), HasSubstr("server b differs\n"));
}

TEST_F(BallastctlTest, StatusOfNoServer) {
  server_->SetAttach(absl::UnavailableError("drains"));
  const absl::Status status = Status(true);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("server " + server_->address()));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(BallastctlTest, ScheduleEqualsPlans) {
  ASSERT_TRUE(PrintSchedules(client_.get(), kStep, 2, true, &out_).ok());
  EXPECT_EQ(out_.str(), ScheduleToJson(SyntheticSchedule(job_, kStep)) + "\n" +
                            ScheduleToJson(SyntheticSchedule(job_, kStep + 1)) +
                            "\n");
  out_.str("");
  ASSERT_TRUE(PrintSchedules(client_.get(), kStep, 1, false, &out_).ok());
  EXPECT_THAT(out_.str(), HasSubstr("step 5"));
}

// The server is asked, and says why not.
TEST_F(BallastctlTest, SamplesOfTheLastNumberAreAskedFor) {
  EXPECT_TRUE(absl::IsUnimplemented(PrintSamples(
      &metrics_, UINT64_MAX, 1, v1::SPLIT_TRAIN, /*json=*/false, &out_)));
}

TEST_F(BallastctlTest, WatchedSchedulesAreTheSame) {
  ASSERT_TRUE(PrintSchedules(client_.get(), kStep, 3, true, &out_).ok());
  const std::string wanted = out_.str();
  out_.str("");
  const absl::Status status =
      WatchSchedules(client_.get(), kStep, 3, true, &out_);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(out_.str(), wanted);
}

TEST_F(BallastctlTest, AWatchWithoutEndRunsUntilTheServerEndsIt) {
  server_->SetSchedule(
      [this](uint64_t step) -> absl::StatusOr<v1::StepSchedule> {
        if (step == kStep + 4) return absl::UnavailableError("it drains");
        return SyntheticSchedule(job_, step);
      });
  const absl::Status status =
      WatchSchedules(client_.get(), kStep, 0, true, &out_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it drains"));
  EXPECT_EQ(Lines().size(), 4);
}

// `pull` against a scripted server.

TEST_F(BallastctlTest, PullPrintsTheScheduledBlocks) {
  server_->AddPull(ServeSteps(2));
  const absl::Status status = Pull(2, true);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 4);
  for (size_t i = 0; i < lines.size(); ++i) {
    const uint64_t step = kStep + i / 3;
    const uint32_t micro_batch = i % 3;
    const std::vector<uint8_t> block = Block(step, micro_batch);
    const v1::StepSchedule schedule = SyntheticSchedule(job_, step);
    const v1::MicroBatchSchedule& columns = schedule.micro_batches(micro_batch);
    uint64_t samples = 0, images = 0, tokens = 0, label_tokens = 0;
    for (int s = 0; s < columns.tokens_size(); ++s) {
      if (columns.modules(0).reader(s) != role_.dp_rank()) continue;
      ++samples;
      images += columns.images(s);
      tokens += columns.tokens(s);
      label_tokens += columns.label_tokens(s);
    }
    EXPECT_EQ(
        json::parse(lines[i]),
        (json{{"step", step},
              {"micro_batch", micro_batch},
              {"samples", samples},
              {"images", images},
              {"tokens", tokens},
              {"label_tokens", label_tokens},
              {"bytes", block.size()},
              {"xxh3", absl::StrFormat(
                           "%016x", XXH3_64bits(block.data(), block.size()))},
              {"placeholders", 1},
              {"wait_ms", 0.0}}));
  }
}

TEST_F(BallastctlTest, PullForPeople) {
  server_->AddPull(ServeSteps(1));
  ASSERT_TRUE(Pull(1, false).ok());
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 1 + 3);
  EXPECT_THAT(lines[0], HasSubstr("placeholders"));
  EXPECT_EQ(lines[0].size(), lines[1].size());
}

TEST_F(BallastctlTest, PullContinuesWithTheNextServer) {
  server_->AddPull(ServeSteps(2));
  ASSERT_TRUE(Pull(2, true).ok());
  const std::vector<std::string> undisturbed = Lines();

  // The first server dies within step 5, after it has returned the schedule.
  server_->AddPull([this](FakePull* pull) {
    pull->SendBlock(kStep, 0, Block(kStep, 0));
    pull->SendBlock(kStep, 1, Block(kStep, 1));
    return absl::UnavailableError("dies");
  });
  const auto other = FakeLoaderServer::Start();
  other->SetAttach(LoaderClient::Create(server_->address())->Attach({}, {}));
  other->SetSchedule(
      [this](uint64_t step) { return SyntheticSchedule(job_, step); });
  other->AddPull([this](FakePull* pull) {
    EXPECT_EQ(pull->open().step(), kStep);
    EXPECT_EQ(pull->open().micro_batch(), 2u);
    EXPECT_EQ(pull->open().steps(), 2u);
    pull->SendBlock(kStep, 2, Block(kStep, 2));
    pull->SendBlock(kStep + 1, 0, Block(kStep + 1, 0));
    return absl::OkStatus();
  });
  const auto other_client = LoaderClient::Create(other->address());
  LoaderClient* const servers[] = {client_.get(), other_client.get()};
  PullOptions options;
  options.role = role_;
  options.step = kStep;
  options.steps = 2;
  options.json = true;
  out_.str("");
  const absl::Status status = PullBatches(servers, options, &clock_, &out_);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Lines(), undisturbed);
}

TEST_F(BallastctlTest, PullRefusesABlockOfAnotherSchedule) {
  server_->AddPull([this](FakePull* pull) {
    std::vector<uint8_t> block = Block(kStep, 0);
    reinterpret_cast<BlockHeader*>(block.data())->micro_batches = 2;
    pull->SendBlock(kStep, 0, block);
    pull->AwaitGone();
    return absl::OkStatus();
  });
  const absl::Status status = Pull(1, true);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("server " + server_->address() +
                        ": step 5 micro-batch 0: block differs from its "
                        "schedule: micro_batches is 2, wanted 3"));
}

TEST_F(BallastctlTest, PullRefusesBytesThatAreNotABlock) {
  server_->AddPull([](FakePull* pull) {
    pull->SendBlock(kStep, 0, std::vector<uint8_t>(500, 1));
    pull->AwaitGone();
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(Pull(1, true).message()), HasSubstr("block: magic"));
}

TEST_F(BallastctlTest, PullReportsWhyItWasRefused) {
  server_->SetAttach(absl::InvalidArgumentError("vision has 2 ranks"));
  EXPECT_THAT(std::string(Pull(1, true).message()),
              HasSubstr("vision has 2 ranks"));
}

}  // namespace

}  // namespace ballast
