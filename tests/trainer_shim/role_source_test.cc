#include "trainer_shim/role_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/loader_client.h"
#include "proto/job.pb.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/communicator.h"

namespace ballast {
namespace {

// A language rank's source, for steps from 4 on with two micro-batches each,
// and the timings that it has reported.
class RoleSourceTest : public ::testing::Test {
 protected:
  void Open(bool without_blocks = false, v1::Split split = v1::SPLIT_TRAIN) {
    FakeLoader loader;
    loader.job.delivery = v1::DELIVERY_DIRECT;
    loader.on_report = [this](const v1::StepTiming& timing) {
      reported_.push_back(timing);
      return absl::OkStatus();
    };
    std::vector<std::unique_ptr<LoaderClient>> clients;
    clients.push_back(FakeLoaderClient(std::move(loader)));
    RoleSource::Options options;
    options.role.set_module(v1::MODULE_LANGUAGE);
    options.role.set_split(split);
    options.start_step = 4;
    options.without_blocks = without_blocks;
    options.clock = &clock_;
    auto source = RoleSource::Create(std::move(clients), options);
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
  }

  v1::StepTiming Report(uint64_t step, uint32_t micro_batch) {
    EXPECT_TRUE(source_->ReportTiming(step, micro_batch, 12.5).ok());
    return reported_.back();
  }

  static BatchTimes GetTimes(uint64_t step, uint32_t micro_batch) {
    BatchTimes times;
    times.step = step;
    times.micro_batch = micro_batch;
    times.copy = absl::Microseconds(250);
    times.exchange = absl::Microseconds(1500);
    times.decode = absl::Microseconds(5750);
    times.pack = absl::ZeroDuration();
    return times;
  }

  ManualClock clock_;  // never advances
  std::vector<v1::StepTiming> reported_;
  std::unique_ptr<RoleSource> source_;
};

TEST_F(RoleSourceTest, ReportsNotedTimes) {
  Open();
  ASSERT_TRUE(source_->Next().ok());
  ASSERT_TRUE(source_->Next().ok());
  source_->NoteTimes(GetTimes(4, 1));
  const v1::StepTiming timing = Report(4, 1);
  EXPECT_EQ(timing.milliseconds(), 12.5);
  ASSERT_TRUE(timing.has_wait_milliseconds());
  EXPECT_EQ(timing.wait_milliseconds(), 0);
  EXPECT_EQ(timing.copy_milliseconds(), 0.25);
  EXPECT_EQ(timing.exchange_milliseconds(), 1.5);
  EXPECT_EQ(timing.decode_milliseconds(), 5.75);
  // A phase that took no time is still reported.
  ASSERT_TRUE(timing.has_pack_milliseconds());
  EXPECT_EQ(timing.pack_milliseconds(), 0);
}

TEST_F(RoleSourceTest, PullsItsSplitAndReportsNoTimesOfIt) {
  for (const bool without_blocks : {false, true}) {
    Open(without_blocks, v1::SPLIT_VALID);
    const auto next = source_->Next();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->step->schedule->split(), v1::SPLIT_VALID);
    EXPECT_EQ(source_->ReportTiming(4, 0, 12.5).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(reported_.empty());
}

TEST_F(RoleSourceTest, LeavesOutUnknownTimes) {
  Open();
  ASSERT_TRUE(source_->Next().ok());
  // Not noted yet.
  v1::StepTiming timing = Report(4, 0);
  EXPECT_TRUE(timing.has_wait_milliseconds());
  EXPECT_FALSE(timing.has_copy_milliseconds());
  EXPECT_FALSE(timing.has_exchange_milliseconds());
  EXPECT_FALSE(timing.has_pack_milliseconds());
  // Noted without an exchange.
  BatchTimes times = GetTimes(4, 0);
  times.exchange = std::nullopt;
  times.decode = std::nullopt;
  source_->NoteTimes(times);
  timing = Report(4, 0);
  EXPECT_TRUE(timing.has_copy_milliseconds());
  EXPECT_FALSE(timing.has_exchange_milliseconds());
  EXPECT_FALSE(timing.has_decode_milliseconds());
  EXPECT_TRUE(timing.has_pack_milliseconds());
}

// A batch that never came, and one that is too old to be kept.
TEST_F(RoleSourceTest, KeepsTheTimesOfTheLastMicroBatchesOnly) {
  Open();
  source_->NoteTimes(GetTimes(4, 0));
  EXPECT_FALSE(Report(4, 0).has_copy_milliseconds());
  ASSERT_TRUE(source_->Next().ok());
  source_->NoteTimes(GetTimes(4, 0));
  for (size_t i = 1; i < RoleSource::kKnownTimes; ++i) {
    ASSERT_TRUE(source_->Next().ok());
  }
  EXPECT_TRUE(Report(4, 0).has_copy_milliseconds());
  ASSERT_TRUE(source_->Next().ok());
  source_->NoteTimes(GetTimes(4, 0));
  const v1::StepTiming timing = Report(4, 0);
  EXPECT_FALSE(timing.has_wait_milliseconds());
  EXPECT_FALSE(timing.has_copy_milliseconds());
}

// Whichever of its servers a role that spreads prefers, one of another job does
// not end it, and of a long list it asks a few.
TEST_F(RoleSourceTest, ARoleThatSpreadsAttachesToThoseOfItsJob) {
  constexpr int kServers = 12;
  for (int other = 0; other < kServers; ++other) {
    int asked = 0;
    std::vector<std::unique_ptr<LoaderClient>> clients;
    for (int i = 0; i < kServers; ++i) {
      FakeLoader loader;
      loader.address = absl::StrCat("10.0.0.", i, ":7070");
      if (i == other) loader.fingerprint = "another";
      loader.on_attach = [&asked] {
        ++asked;
        return absl::OkStatus();
      };
      clients.push_back(FakeLoaderClient(std::move(loader)));
    }
    RoleSource::Options options;
    options.role.set_module(v1::MODULE_LANGUAGE);
    options.without_blocks = true;
    options.spread = 2;
    options.fingerprint.set_hash(kSyntheticFingerprint);
    options.clock = &clock_;
    const auto source = RoleSource::Create(std::move(clients), options);
    EXPECT_TRUE(source.ok()) << other << ": " << source.status();
    EXPECT_LE(asked, 3);
  }
}

TEST_F(RoleSourceTest, WithoutBlocksNothingIsTimed) {
  Open(/*without_blocks=*/true);
  ASSERT_TRUE(source_->Next().ok());
  source_->NoteTimes(GetTimes(4, 0));
  const v1::StepTiming timing = Report(4, 0);
  EXPECT_EQ(timing.milliseconds(), 12.5);
  EXPECT_FALSE(timing.has_wait_milliseconds());
  EXPECT_FALSE(timing.has_pack_milliseconds());
}

using ::testing::HasSubstr;

class MicroBatchCountsTest : public ::testing::Test {
 protected:
  MicroBatchCountsTest() {
    job_.dynamic = true;
    FakeLoader loader;
    loader.job = job_;
    loader.on_schedule = [this](v1::StepSchedule* schedule) {
      ++asked_;
      if (empty_) schedule->clear_micro_batches();
      return answer_;
    };
    client_ = FakeLoaderClient(std::move(loader));
    ScheduleSource::Options options;
    options.fingerprint = kSyntheticFingerprint;
    options.clock = &clock_;
    LoaderClient* const servers[] = {client_.get()};
    counts_ = std::make_unique<MicroBatchCounts>(servers, options);
  }
  absl::StatusOr<uint32_t> Get(uint64_t step) {
    return counts_->Get(step, LoaderClient::Use::kTrains);
  }

  SyntheticJob job_;  // step s has 1 + s % 3 micro-batches
  int asked_ = 0;
  bool empty_ = false;
  absl::Status answer_;
  ManualClock clock_;  // never advances
  std::unique_ptr<LoaderClient> client_;
  std::unique_ptr<MicroBatchCounts> counts_;
};

TEST_F(MicroBatchCountsTest, AsksForWhatIsNotKnown) {
  for (const uint64_t step : {3, 4, 5, 4}) {
    EXPECT_EQ(*Get(step), 1 + step % 3);
  }
  EXPECT_EQ(asked_, 4);
}

TEST_F(MicroBatchCountsTest, KnowsTheLastNotedStepsWithoutAsking) {
  const uint64_t steps = MicroBatchCounts::kKnownSteps + 1;
  for (uint64_t step = 0; step < steps; ++step) {
    counts_->Note(SyntheticSchedule(job_, step));
  }
  for (uint64_t step = 1; step < steps; ++step) {
    EXPECT_EQ(*Get(step), 1 + step % 3);
  }
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(*Get(0), 1);
  EXPECT_EQ(asked_, 1);
}

TEST_F(MicroBatchCountsTest, ErrorsEndNothing) {
  empty_ = true;
  EXPECT_THAT(Get(7).status().message(),
              HasSubstr("step 7 has no micro-batch"));
  empty_ = false;
  answer_ = absl::InvalidArgumentError("no such step");
  EXPECT_THAT(Get(8).status().message(), HasSubstr("no such step"));
  answer_ = absl::OkStatus();
  EXPECT_EQ(*Get(8), 3);
}

// A server that is away: the wait for it is the clock's, which never advances.
TEST_F(MicroBatchCountsTest, CancelEndsTheWait) {
  answer_ = absl::UnavailableError("restarting");
  counts_->Cancel();
  EXPECT_EQ(Get(1).status().code(), absl::StatusCode::kCancelled);
}

// Number of the server chosen of those that serve, or do not.
size_t Chosen(const std::vector<bool>& serve) {
  std::vector<std::unique_ptr<LoaderClient>> servers;
  for (const bool serves : serve) {
    FakeLoader loader;
    if (!serves) loader.health = absl::UnavailableError("away");
    servers.push_back(FakeLoaderClient(loader));
  }
  const LoaderClient* const chosen = MeetingServer(servers);
  size_t number = 0;
  while (servers[number].get() != chosen) ++number;
  return number;
}

TEST(MeetingServerTest, IsTheFirstThatServes) {
  EXPECT_EQ(Chosen({true, true}), 0);
  EXPECT_EQ(Chosen({false, true}), 1);
  EXPECT_EQ(Chosen({false, false, true}), 2);
}

TEST(MeetingServerTest, IsTheFirstWhereNoneServes) {
  EXPECT_EQ(Chosen({false}), 0);
  EXPECT_EQ(Chosen({false, false}), 0);
}

}  // namespace
}  // namespace ballast
