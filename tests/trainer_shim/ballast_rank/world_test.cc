#include "trainer_shim/ballast_rank/world.h"

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/meeting_place.h"
#include "tests/fakes/synthetic_schedule.h"
#include "tests/trainer_shim/host/dp_sizes_test_base.h"
#include "trainer_shim/ballast_rank/report.h"
#include "trainer_shim/embedding_plan.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

WorldOptions TwoSteps() {
  WorldOptions options;
  options.servers = {"fake:1", "fake:2"};
  options.start_step = 5;
  options.steps = 2;
  return options;
}

absl::Status RunRoles(const FakeLoader& loader, const WorldOptions& options,
                      const OnBatch& on_batch) {
  const v1::Job job = SyntheticJobMessage(loader.job);
  const auto roles = GetRoles(job, options);
  if (!roles.ok()) return roles.status();
  v1::Fingerprint fingerprint;
  fingerprint.set_hash(loader.fingerprint);
  return RunWorld(
      job, fingerprint, *roles, options,
      [&](const std::string& address) {
        FakeLoader server = loader;
        server.address = address;
        return FakeLoaderClient(server);
      },
      on_batch);
}

// The JSON lines of a run, in the order in which they were written.
std::vector<nlohmann::json> Lines(const SyntheticJob& job) {
  FakeLoader loader;
  loader.job = job;
  std::ostringstream out;
  InterleavedLines lines(job.vision_dp + job.language_dp, &out);
  const absl::Status status =
      RunRoles(loader, TwoSteps(), [&](const RankBatch& got) {
        lines.Add(got.rank, BatchLine(*got.batch, got.next));
      });
  EXPECT_TRUE(status.ok()) << status;
  std::vector<nlohmann::json> parsed;
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);) {
    parsed.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_TRUE(parsed.back().is_object()) << line;
    EXPECT_EQ(parsed.back().erase("next_ms"), 1);
  }
  return parsed;
}

using WorldTest = DpSizesTest;

TEST_P(WorldTest, EverySampleHasOneOwnerPerModule) {
  for (const v1::Delivery delivery :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_HYBRID,
        v1::DELIVERY_OFF}) {
    const SyntheticJob job = Job(delivery);
    std::map<std::string, std::multiset<std::string>> names;
    for (const auto& line : Lines(job)) {
      for (const auto& sample : line["samples"]) {
        names[line["module"]].insert(sample.get<std::string>());
      }
    }
    std::multiset<std::string> wanted;
    for (const uint64_t step : {5, 6}) {
      const v1::StepSchedule schedule = SyntheticSchedule(job, step);
      for (const auto& columns : schedule.micro_batches()) {
        for (int i = 0; i < columns.source_size(); ++i) {
          wanted.insert(schedule.sources(columns.source(i)) + ":" +
                        std::to_string(columns.ordinal(i)));
        }
      }
    }
    EXPECT_EQ(names["vision"], wanted);
    EXPECT_EQ(names["language"], wanted);
  }
}

TEST_P(WorldTest, LinesAreTheSameOnEveryRun) {
  const auto lines = Lines(Job(v1::DELIVERY_EXCHANGE));
  EXPECT_EQ(lines, Lines(Job(v1::DELIVERY_EXCHANGE)));
  // Ordered by step, micro-batch, module, rank.
  const auto key = [](const nlohmann::json& line) {
    return std::make_tuple(
        line["step"].get<int>(), line["micro_batch"].get<int>(),
        line["module"] != "vision", line["dp_rank"].get<int>());
  };
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_LT(key(lines[i - 1]), key(lines[i]));
  }
}

TEST_P(WorldTest, ExchangeDirectAndHybridDigestsAreEqual) {
  const auto exchanged = Lines(Job(v1::DELIVERY_EXCHANGE));
  const auto direct = Lines(Job(v1::DELIVERY_DIRECT));
  const auto hybrid = Lines(Job(v1::DELIVERY_HYBRID));
  ASSERT_EQ(exchanged.size(), direct.size());
  ASSERT_EQ(exchanged.size(), hybrid.size());
  for (size_t i = 0; i < exchanged.size(); ++i) {
    EXPECT_EQ(exchanged[i]["digest"], direct[i]["digest"]);
    EXPECT_EQ(exchanged[i]["samples"], direct[i]["samples"]);
    EXPECT_EQ(direct[i]["bytes_moved"], 0);
    EXPECT_EQ(exchanged[i]["digest"], hybrid[i]["digest"]);
    EXPECT_EQ(exchanged[i]["samples"], hybrid[i]["samples"]);
  }
}

// The same for split placement, whose digests cover the embedding plan, and
// both batches of a rank have one plan.
TEST_P(WorldTest, SplitPlacementGivesOnePlanWithEveryDelivery) {
  std::map<v1::Delivery, std::multiset<std::string>> digests;
  for (const v1::Delivery delivery :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_HYBRID}) {
    FakeLoader loader;
    loader.job = Job(delivery);
    if (loader.job.vision_dp != loader.job.language_dp) return;
    loader.job.split = true;
    Mutex mutex;
    std::map<std::string, std::vector<EmbeddingPlan>> plans;
    const absl::Status status =
        RunRoles(loader, TwoSteps(), [&](const RankBatch& got) {
          const PackedBatch& batch = *got.batch;
          MutexLock lock(&mutex);
          digests[delivery].insert(ComputeDigest(batch));
          plans[absl::StrCat(batch.step, " ", batch.micro_batch, " ",
                             batch.role.dp_rank())]
              .push_back(FindPlan(batch.embeddings, v1::MODULE_VISION));
        });
    ASSERT_TRUE(status.ok()) << status;
    int64_t tokens = 0;
    for (const auto& [name, of] : plans) {
      ASSERT_EQ(of.size(), 2) << name;
      EXPECT_TRUE(of[0].planned()) << name;
      EXPECT_EQ(of[0].send, of[1].send) << name;
      EXPECT_EQ(of[0].receive, of[1].receive) << name;
      EXPECT_EQ(of[0].order, of[1].order) << name;
      tokens += of[0].order.size();
    }
    EXPECT_GT(tokens, 0);
  }
  EXPECT_EQ(digests[v1::DELIVERY_EXCHANGE], digests[v1::DELIVERY_DIRECT]);
  EXPECT_EQ(digests[v1::DELIVERY_EXCHANGE], digests[v1::DELIVERY_HYBRID]);
}

// Modules on ranks of their own, of any sizes: an encoder's batch has what the
// rank sends, a language batch what it receives, and they fit.
TEST_P(WorldTest, ModulesApartGiveEachItsSideOfOnePlan) {
  std::map<v1::Delivery, std::multiset<std::string>> digests;
  for (const v1::Delivery delivery :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_HYBRID}) {
    FakeLoader loader;
    loader.job = Job(delivery);
    loader.job.split = loader.job.apart = true;
    Mutex mutex;
    // By step and micro-batch, then module and rank.
    std::map<std::string,
             std::map<std::pair<v1::Module, uint32_t>, EmbeddingPlan>>
        plans;
    const absl::Status status =
        RunRoles(loader, TwoSteps(), [&](const RankBatch& got) {
          const PackedBatch& batch = *got.batch;
          MutexLock lock(&mutex);
          digests[delivery].insert(ComputeDigest(batch));
          plans[absl::StrCat(batch.step, " ", batch.micro_batch)]
               [{batch.role.module(), batch.role.dp_rank()}] =
                   FindPlan(batch.embeddings, v1::MODULE_VISION);
        });
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_FALSE(plans.empty());
    int64_t tokens = 0;
    for (auto& [name, of] : plans) {
      for (uint32_t v = 0; v < loader.job.vision_dp; ++v) {
        const EmbeddingPlan& vision = of[{v1::MODULE_VISION, v}];
        ASSERT_EQ(vision.send.size(), loader.job.language_dp) << name;
        EXPECT_TRUE(vision.receive.empty() && vision.order.empty()) << name;
        for (uint32_t l = 0; l < loader.job.language_dp; ++l) {
          const EmbeddingPlan& language = of[{v1::MODULE_LANGUAGE, l}];
          ASSERT_EQ(language.receive.size(), loader.job.vision_dp) << name;
          EXPECT_TRUE(language.send.empty()) << name;
          EXPECT_EQ(vision.send[l], language.receive[v]) << name;
          tokens += vision.send[l];
        }
      }
    }
    EXPECT_GT(tokens, 0);
  }
  EXPECT_EQ(digests[v1::DELIVERY_EXCHANGE], digests[v1::DELIVERY_DIRECT]);
  EXPECT_EQ(digests[v1::DELIVERY_EXCHANGE], digests[v1::DELIVERY_HYBRID]);
}

INSTANTIATE_TEST_SUITE_P(
    DataParallelSizes, WorldTest,
    ::testing::ValuesIn(std::vector<std::tuple<uint32_t, uint32_t>>{
        {1, 1}, {2, 2}, {4, 4}, {2, 4}, {4, 2}, {2, 3}}),
    [](const auto& info) {
      return "vision" + std::to_string(std::get<0>(info.param)) + "language" +
             std::to_string(std::get<1>(info.param));
    });

// Each rank runs by itself, as in a process of its own.
TEST(SingleRanksTest, ExchangeWithEachOther) {
  SyntheticJob job;
  job.vision_dp = 2;
  job.language_dp = 3;
  MeetingPlace place;
  FakeLoader loader;
  loader.job = job;
  loader.on_rendezvous = [&](const auto&... arguments) {
    return place.Meet(arguments...);
  };
  Mutex mutex;
  std::vector<nlohmann::json> lines;
  std::vector<std::thread> ranks;
  for (const auto& [module, dp] :
       {std::pair(v1::MODULE_VISION, 2), std::pair(v1::MODULE_LANGUAGE, 3)}) {
    for (int rank = 0; rank < dp; ++rank) {
      WorldOptions options = TwoSteps();
      options.servers = {"127.0.0.1:1"};
      options.run = "start 1";
      options.role.emplace();
      options.role->set_module(module);
      options.role->set_dp_rank(rank);
      ranks.emplace_back([&, options] {
        const absl::Status end =
            RunRoles(loader, options, [&](const RankBatch& got) {
              MutexLock lock(&mutex);
              lines.push_back(
                  nlohmann::json::parse(BatchLine(*got.batch, got.next)));
              lines.back().erase("next_ms");
            });
        EXPECT_TRUE(end.ok()) << end;
      });
    }
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(lines, ::testing::UnorderedElementsAreArray(Lines(job)));
}

TEST(WorldFaultsTest, ASingleRankNeedsNoOthersWhereNothingIsExchanged) {
  WorldOptions options = TwoSteps();
  options.role.emplace();
  options.role->set_module(v1::MODULE_LANGUAGE);
  const auto ignore = [](const RankBatch&) {};
  FakeLoader direct;
  direct.job.delivery = v1::DELIVERY_DIRECT;
  int batches = 0;
  EXPECT_TRUE(
      RunRoles(direct, options, [&](const RankBatch&) { ++batches; }).ok());
  EXPECT_EQ(batches, 4);
  FakeLoader alone;
  alone.job.language_dp = 1;
  EXPECT_TRUE(RunRoles(alone, options, ignore).ok());
  options.role->set_dp_rank(2);
  EXPECT_EQ(RunRoles({}, options, ignore).code(),
            absl::StatusCode::kInvalidArgument);
}

// A failure also ends the ranks of the other module, which share nothing with
// the failed rank and would not end by themselves.
TEST(WorldFaultsTest, TheFirstFailureStopsAllRanks) {
  FakeLoader loader;
  loader.before_fetch = [](const v1::Role& role, uint64_t step, uint32_t) {
    return role.module() == v1::MODULE_VISION && role.dp_rank() == 1 &&
                   step == 6
               ? absl::DataLossError("checksum of the block")
               : absl::OkStatus();
  };
  WorldOptions options = TwoSteps();
  options.steps = 0;
  const absl::Status status =
      RunRoles(loader, options, [](const RankBatch&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("vision rank 1"));
}

TEST(WorldReportTest, ReportsPackingTimes) {
  Mutex mutex;
  std::set<std::tuple<uint64_t, uint32_t, int, uint32_t>> reported;
  FakeLoader loader;
  loader.on_report = [&](const v1::StepTiming& timing) {
    MutexLock lock(&mutex);
    EXPECT_GE(timing.milliseconds(), 0);
    reported.emplace(timing.step(), timing.micro_batch(),
                     timing.role().module(), timing.role().dp_rank());
    return absl::OkStatus();
  };
  WorldOptions options = TwoSteps();
  ASSERT_TRUE(RunRoles(loader, options, [](const RankBatch&) {}).ok());
  EXPECT_TRUE(reported.empty()) << "only when asked to";
  options.report_timings = true;
  const absl::Status status =
      RunRoles(loader, options, [](const RankBatch&) {});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reported.size(), 2u * loader.job.micro_batches * 4);
  EXPECT_EQ(std::get<0>(*reported.begin()), options.start_step);

  loader.on_report = [](const v1::StepTiming&) {
    return absl::InvalidArgumentError("no such rank");
  };
  EXPECT_THAT(
      std::string(RunRoles(loader, options, [](const RankBatch&) {}).message()),
      HasSubstr("a timing was not taken: no such rank"));
}

TEST(WorldReportTest, LostTimingsAreCountedAndEndNothing) {
  for (const absl::Status& why :
       {absl::DeadlineExceededError("it is late"),
        absl::UnavailableError("it is gone"),
        absl::FailedPreconditionError("it serves other data by now"),
        absl::ResourceExhaustedError("it has had enough")}) {
    FakeLoader loader;
    loader.on_report = [&why](const v1::StepTiming& timing) {
      return timing.step() == 6 ? why : absl::OkStatus();
    };
    LostReports lost;
    WorldOptions options = TwoSteps();
    options.report_timings = true;
    options.lost_reports = &lost;
    EXPECT_EQ(lost.Warning(), "");
    const absl::Status status =
        RunRoles(loader, options, [](const RankBatch&) {});
    EXPECT_TRUE(status.ok()) << status;
    // One of two steps from each of four ranks.
    EXPECT_EQ(lost.count(), loader.job.micro_batches * 4u);
    EXPECT_THAT(lost.Warning(),
                AllOf(HasSubstr(std::to_string(lost.count()) + " timings"),
                      HasSubstr(std::string(why.message()))));

    options.lost_reports = nullptr;
    EXPECT_TRUE(RunRoles(loader, options, [](const RankBatch&) {}).ok());
  }
}

TEST(WorldReportTest, TimingsTakenByAnotherServerAreNotLost) {
  Mutex mutex;
  std::set<std::tuple<uint64_t, uint32_t, int, uint32_t>> asked;
  FakeLoader loader;
  // Each timing is refused once: by the first server.
  loader.on_report = [&](const v1::StepTiming& timing) {
    MutexLock lock(&mutex);
    const bool first =
        asked
            .emplace(timing.step(), timing.micro_batch(),
                     timing.role().module(), timing.role().dp_rank())
            .second;
    return first ? absl::DeadlineExceededError("it is late") : absl::OkStatus();
  };
  LostReports lost;
  WorldOptions options = TwoSteps();
  options.report_timings = true;
  options.lost_reports = &lost;
  EXPECT_TRUE(RunRoles(loader, options, [](const RankBatch&) {}).ok());
  EXPECT_EQ(asked.size(), 2u * loader.job.micro_batches * 4);
  EXPECT_EQ(lost.count(), 0u);
}

}  // namespace
}  // namespace ballast
