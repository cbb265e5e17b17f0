#include "trainer_shim/host/trainer_shim.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/no_threads.h"
#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/host/in_process_communicator.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::unique_ptr<LoaderClient>> Clients(
    const std::vector<FakeLoader>& loaders) {
  std::vector<std::unique_ptr<LoaderClient>> clients;
  for (const FakeLoader& loader : loaders) {
    clients.push_back(FakeLoaderClient(loader));
  }
  return clients;
}

// The batches that a rank got, and the error that ended it.
struct RankRun {
  std::vector<PackedBatch> batches;
  absl::Status end;
};

RankRun RunRank(TrainerShim::Options options,
                const std::vector<FakeLoader>& loaders) {
  RankRun run;
  auto shim = TrainerShim::Create(std::move(options), Clients(loaders));
  if (!shim.ok()) return {{}, shim.status()};
  while (true) {
    const auto batch = (*shim)->Next();
    if (!batch.ok()) {
      run.end = batch.status();
      EXPECT_EQ((*shim)->Next().status(), run.end) << "errors are final";
      return run;
    }
    EXPECT_EQ((*shim)->schedule()->step(), (*batch)->step);
    run.batches.push_back(**batch);
  }
}

// Runs steps 4, 5 and 6 on every language rank, each in a thread.
std::vector<RankRun> RunAll(const std::vector<FakeLoader>& loaders,
                            Clock* clock = Clock::Real()) {
  const uint32_t dp = loaders[0].job.language_dp;
  auto ends = InProcessGroup(dp);
  std::vector<RankRun> runs(dp);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < dp; ++rank) {
    TrainerShim::Options options;
    options.source.role = RoleOf(v1::MODULE_LANGUAGE, rank);
    options.communicator = std::move(ends[rank]);
    options.source.start_step = 4;
    options.source.steps = 3;
    options.source.clock = clock;
    threads.emplace_back([&, rank, options = std::move(options)]() mutable {
      runs[rank] = RunRank(std::move(options), loaders);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return runs;
}

TEST(TrainerShimTest, ServesStepsInOrderAndEndsWithOutOfRange) {
  const std::vector<RankRun> runs = RunAll({FakeLoader()});
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.end.code(), absl::StatusCode::kOutOfRange) << run.end;
    ASSERT_EQ(run.batches.size(), 6);
    for (size_t i = 0; i < run.batches.size(); ++i) {
      EXPECT_EQ(run.batches[i].step, 4 + i / 2);
      EXPECT_EQ(run.batches[i].micro_batch, i % 2);
    }
  }
}

// Steps 4, 5 and 6 have 2, 3 and 1 micro-batches.
TEST(TrainerShimTest, EveryStepHasItsOwnNumberOfMicroBatches) {
  FakeLoader loader;
  loader.job.dynamic = true;
  const std::vector<std::pair<uint64_t, uint32_t>> wanted = {
      {4, 0}, {4, 1}, {5, 0}, {5, 1}, {5, 2}, {6, 0}};
  for (const RankRun& run : RunAll({loader})) {
    EXPECT_EQ(run.end.code(), absl::StatusCode::kOutOfRange) << run.end;
    ASSERT_EQ(run.batches.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(run.batches[i].step, wanted[i].first);
      EXPECT_EQ(run.batches[i].micro_batch, wanted[i].second);
    }
  }
}

// Asked before the first batch and beyond what is prefetched.
TEST(TrainerShimTest, TellsTheNumberOfMicroBatchesAhead) {
  FakeLoader loader;
  loader.job.dynamic = true;
  TrainerShim::Options options;
  options.source.role = RoleOf(v1::MODULE_LANGUAGE, 0);
  options.communicator = std::move(InProcessGroup(2)[0]);
  options.source.start_step = 4;
  options.source.steps = 100;
  const auto shim = TrainerShim::Create(std::move(options), Clients({loader}));
  ASSERT_TRUE(shim.ok()) << shim.status();
  for (const uint64_t step : {4, 5, 6, 103, 2}) {
    const auto number = (*shim)->NumMicroBatches(step);
    ASSERT_TRUE(number.ok()) << number.status();
    EXPECT_EQ(*number, MicroBatchesOf(loader.job, step)) << step;
  }
  EXPECT_EQ((*shim)->NumMicroBatches(104).status().code(),
            absl::StatusCode::kOutOfRange);
  (*shim)->Cancel();
  EXPECT_EQ((*shim)->NumMicroBatches(5).status().code(),
            absl::StatusCode::kCancelled);
}

// Its own next step is one that the rank trains on. Any other is a question.
TEST(TrainerShimTest, AQuestionAboutAStepFarAheadReachesNothing) {
  FakeLoader loader;
  std::vector<uint64_t> looked;
  loader.on_look = [&](uint64_t step) { looked.push_back(step); };
  TrainerShim::Options options;
  options.source.role = RoleOf(v1::MODULE_LANGUAGE, 0);
  options.source.start_step = 4;
  options.communicator = std::move(InProcessGroup(2)[0]);
  const auto shim = TrainerShim::Create(std::move(options), Clients({loader}));
  ASSERT_TRUE(shim.ok()) << shim.status();
  EXPECT_TRUE((*shim)->NumMicroBatches(4).ok());
  EXPECT_THAT(looked, IsEmpty());
  EXPECT_TRUE((*shim)->NumMicroBatches(100000).ok());
  EXPECT_THAT(looked, ElementsAre(100000));
  // What is looked at is not kept: the answer may change.
  EXPECT_TRUE((*shim)->NumMicroBatches(100000).ok());
  EXPECT_THAT(looked, ElementsAre(100000, 100000));
}

TEST(TrainerShimTest, WithoutAnEndTheLastNumberIsAStep) {
  FakeLoader loader;
  TrainerShim::Options options;
  options.source.role = RoleOf(v1::MODULE_LANGUAGE, 0);
  options.communicator = std::move(InProcessGroup(2)[0]);
  const auto shim = TrainerShim::Create(std::move(options), Clients({loader}));
  ASSERT_TRUE(shim.ok()) << shim.status();
  EXPECT_TRUE((*shim)->NumMicroBatches(UINT64_MAX).ok());
}

TEST(TrainerShimTest, DirectGivesWhatExchangeGivesWithoutACommunicator) {
  const std::vector<RankRun> exchanged = RunAll({FakeLoader()});
  FakeLoader direct;
  direct.job.delivery = v1::DELIVERY_DIRECT;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    TrainerShim::Options options;
    options.source.role = RoleOf(v1::MODULE_LANGUAGE, rank);
    options.source.start_step = 4;
    options.source.steps = 3;
    const RankRun run = RunRank(std::move(options), {direct});
    ASSERT_EQ(run.batches.size(), exchanged[rank].batches.size());
    for (size_t i = 0; i < run.batches.size(); ++i) {
      EXPECT_EQ(ComputeDigest(run.batches[i]),
                ComputeDigest(exchanged[rank].batches[i]));
    }
  }
}

TEST(TrainerShimTest, AStandbyOfAnotherConfigurationIsPassedOver) {
  const std::vector<RankRun> alone = RunAll({FakeLoader()});
  FakeLoader other;
  other.address = "fake:2";
  other.fingerprint = "ffeeddccbbaa99887766554433221100";
  FakeLoader equal;
  equal.address = "fake:3";
  const std::vector<RankRun> both = RunAll({FakeLoader(), other, equal});
  ASSERT_EQ(both.size(), alone.size());
  for (size_t rank = 0; rank < both.size(); ++rank) {
    EXPECT_EQ(both[rank].end.code(), absl::StatusCode::kOutOfRange)
        << both[rank].end;
    ASSERT_EQ(both[rank].batches.size(), alone[rank].batches.size());
    for (size_t i = 0; i < both[rank].batches.size(); ++i) {
      EXPECT_EQ(ComputeDigest(both[rank].batches[i]),
                ComputeDigest(alone[rank].batches[i]));
    }
  }
}

TEST(TrainerShimTest, APrimaryOfAnotherConfigurationIsRefused) {
  FakeLoader other;
  other.fingerprint = "ffeeddccbbaa99887766554433221100";
  TrainerShim::Options options;
  options.source.role = RoleOf(v1::MODULE_LANGUAGE, 1);
  options.source.fingerprint.set_hash(kSyntheticFingerprint);
  const RankRun run = RunRank(std::move(options), {other});
  EXPECT_EQ(run.end.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(run.end.message(), HasSubstr("language rank 1"));
}

// The first server goes away in the middle; the second one takes over.
TEST(TrainerShimTest, AnotherServerTakesOver) {
  FakeLoader first;
  first.before_fetch = [](const v1::Role&, uint64_t step, uint32_t) {
    return step < 5 ? absl::OkStatus() : absl::UnavailableError("drained");
  };
  first.on_schedule = [](v1::StepSchedule* schedule) {
    return schedule->step() < 6 ? absl::OkStatus()
                                : absl::UnavailableError("drained");
  };
  FakeLoader second;
  second.address = "fake:2";
  const auto alone = RunAll({FakeLoader()});
  ManualClock clock;  // never advances: nothing may wait for the other server
  const auto runs = RunAll({first, second}, &clock);
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    EXPECT_EQ(runs[rank].end.code(), absl::StatusCode::kOutOfRange)
        << runs[rank].end;
    ASSERT_EQ(runs[rank].batches.size(), 6);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(ComputeDigest(runs[rank].batches[i]),
                ComputeDigest(alone[rank].batches[i]));
    }
  }
}

TEST(TrainerShimTest, OneRanksFailureEndsTheOthersWithItsCause) {
  FakeLoader loader;
  loader.before_fetch = [](const v1::Role& role, uint64_t step, uint32_t) {
    return role.dp_rank() == 1 && step == 5
               ? absl::DataLossError("checksum of the block")
               : absl::OkStatus();
  };
  for (const RankRun& run : RunAll({loader})) {
    EXPECT_EQ(run.batches.size(), 2);
    EXPECT_EQ(run.end.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(run.end.message(), AllOf(HasSubstr("language rank 1"),
                                         HasSubstr("checksum of the block")));
  }
}

TEST(TrainerShimTest, SchedulesOfAnotherConfigurationAreRefused) {
  FakeLoader loader;
  loader.on_schedule = [](v1::StepSchedule* schedule) {
    if (schedule->step() == 5) {
      schedule->set_fingerprint("0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f");
    }
    return absl::OkStatus();
  };
  for (const RankRun& run : RunAll({loader})) {
    EXPECT_EQ(run.batches.size(), 2);
    EXPECT_EQ(run.end.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(run.end.message(), HasSubstr("0f0f0f0f0f0f0f0f0f0f"));
  }
  loader.on_schedule = [](v1::StepSchedule* schedule) {
    schedule->add_micro_batches();
    return absl::OkStatus();
  };
  for (const RankRun& run : RunAll({loader})) {
    EXPECT_THAT(run.end.message(), HasSubstr("micro_batches is 2, wanted 3"));
  }
  // An error that looks like the end of the steps must not be taken for it.
  loader.on_schedule = [](v1::StepSchedule*) {
    return absl::OutOfRangeError("positions do not fit");
  };
  for (const RankRun& run : RunAll({loader})) {
    EXPECT_EQ(run.end.code(), absl::StatusCode::kInternal);
  }
}

TEST(TrainerShimTest, MisuseIsAnError) {
  const auto create = [](v1::Role role,
                         std::unique_ptr<Communicator> communicator,
                         const std::vector<FakeLoader>& loaders) {
    TrainerShim::Options options;
    options.source.role = role;
    options.communicator = std::move(communicator);
    return TrainerShim::Create(std::move(options), Clients(loaders)).status();
  };
  EXPECT_EQ(create(RoleOf(v1::MODULE_LANGUAGE, 0), nullptr, {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      create(RoleOf(v1::MODULE_LANGUAGE, 0), nullptr, {FakeLoader()}).message(),
      HasSubstr("needs a communicator; none was given"));
  EXPECT_THAT(create(RoleOf(v1::MODULE_LANGUAGE, 0),
                     std::move(InProcessGroup(3)[0]), {FakeLoader()})
                  .message(),
              HasSubstr("rank 0 of 3, wanted rank 0 of 2"));
  EXPECT_THAT(
      create(RoleOf(v1::MODULE_LANGUAGE, 2), nullptr, {FakeLoader()}).message(),
      HasSubstr("language has 2 data-parallel ranks; rank 2"));
  FakeLoader hybrid;
  hybrid.job.delivery = v1::DELIVERY_HYBRID;
  EXPECT_THAT(
      create(RoleOf(v1::MODULE_LANGUAGE, 0), nullptr, {hybrid}).message(),
      HasSubstr("needs a communicator; none was given"));
  EXPECT_THAT(create(RoleOf(v1::MODULE_LANGUAGE, 0),
                     std::move(InProcessGroup(2)[0]), {FakeLoader(), hybrid})
                  .message(),
              HasSubstr("balance.delivery is DELIVERY_EXCHANGE at server"));
}

// A rank whose peer never comes blocks in Next until it is cancelled.
TEST(TrainerShimTest, CancelEndsNext) {
  auto ends = InProcessGroup(2);
  std::atomic<bool> fetched = false;
  FakeLoader loader;
  loader.before_fetch = [&](const v1::Role&, uint64_t, uint32_t) {
    fetched = true;
    fetched.notify_all();
    return absl::OkStatus();
  };
  TrainerShim::Options options;
  options.source.role = RoleOf(v1::MODULE_LANGUAGE, 0);
  options.communicator = std::move(ends[0]);
  options.source.steps = 1;
  auto shim = TrainerShim::Create(std::move(options), Clients({loader}));
  ASSERT_TRUE(shim.ok()) << shim.status();
  std::thread canceller([&] {
    fetched.wait(false);
    (*shim)->Cancel();
  });
  const absl::Status end = (*shim)->Next().status();
  canceller.join();
  EXPECT_EQ(end.code(), absl::StatusCode::kCancelled) << end;
  EXPECT_EQ((*shim)->Next().status(), end);
}

TEST(TrainerShimTest, ReportsToTheFirstServerThatAnswers) {
  std::vector<v1::StepTiming> kept;
  absl::Status first_answer = absl::UnavailableError("gone");
  absl::Status second_answer;
  FakeLoader first, second;
  first.job.delivery = second.job.delivery = v1::DELIVERY_DIRECT;
  first.on_report = [&](const v1::StepTiming&) { return first_answer; };
  second.on_report = [&](const v1::StepTiming& timing) {
    if (second_answer.ok()) kept.push_back(timing);
    return second_answer;
  };
  TrainerShim::Options options;
  options.source.role = RoleOf(v1::MODULE_LANGUAGE, 1);
  options.source.steps = 1;
  const auto shim =
      TrainerShim::Create(std::move(options), Clients({first, second}));
  ASSERT_TRUE(shim.ok()) << shim.status();
  EXPECT_TRUE((*shim)->ReportTiming(7, 3, 12.5).ok());
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].role().module(), v1::MODULE_LANGUAGE);
  EXPECT_EQ(kept[0].role().dp_rank(), 1u);
  EXPECT_EQ(kept[0].step(), 7u);
  EXPECT_EQ(kept[0].micro_batch(), 3u);
  EXPECT_EQ(kept[0].milliseconds(), 12.5);
  // A timing that is wrong at one server is wrong at all: no other is asked.
  first_answer = absl::OkStatus();
  second_answer = absl::InvalidArgumentError("no such micro-batch");
  EXPECT_EQ((*shim)->ReportTiming(7, 99, 1), second_answer);
  EXPECT_EQ(kept.size(), 1u);
  EXPECT_TRUE((*shim)->Next().ok()) << "a refused timing ends nothing";
}

TEST(TrainerShimTest, ReportsTheTimesOfTheBatchesThatItMade) {
  std::vector<v1::StepTiming> kept;
  FakeLoader loader;
  loader.job.delivery = v1::DELIVERY_DIRECT;
  loader.on_report = [&](const v1::StepTiming& timing) {
    kept.push_back(timing);
    return absl::OkStatus();
  };
  TrainerShim::Options options;
  options.source.role = RoleOf(v1::MODULE_LANGUAGE, 0);
  options.source.steps = 1;
  const auto shim = TrainerShim::Create(std::move(options), Clients({loader}));
  ASSERT_TRUE(shim.ok()) << shim.status();
  const auto batch = (*shim)->Next();
  ASSERT_TRUE(batch.ok()) << batch.status();
  const double packing = absl::ToDoubleMilliseconds((*batch)->pack_time);
  ASSERT_TRUE((*shim)->ReportTiming(0, 0, 1).ok());
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_TRUE(kept[0].has_wait_milliseconds());
  EXPECT_EQ(kept[0].pack_milliseconds(), packing);
  EXPECT_FALSE(kept[0].has_exchange_milliseconds()) << "direct delivery";
  EXPECT_FALSE(kept[0].has_copy_milliseconds()) << "no device";
}

// A rank whose threads cannot be started has no shim, and its peers end.
TEST(TrainerShimTest, WithoutThreadsTheGroupEnds) {
  auto ends = InProcessGroup(2);
  TrainerShim::Options options;
  options.source.role = RoleOf(v1::MODULE_LANGUAGE, 0);
  options.communicator = std::move(ends[0]);
  {
    const NoThreads limit;
    const absl::Status status =
        TrainerShim::Create(std::move(options), Clients({FakeLoader()}))
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("no thread to fetch batches"));
  }
  TrainerShim::Options peer;
  peer.source.role = RoleOf(v1::MODULE_LANGUAGE, 1);
  peer.communicator = std::move(ends[1]);
  EXPECT_THAT(
      std::string(RunRank(std::move(peer), {FakeLoader()}).end.message()),
      HasSubstr("no thread to fetch batches"));
}

}  // namespace
}  // namespace ballast
