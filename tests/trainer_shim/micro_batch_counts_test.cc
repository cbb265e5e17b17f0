#include "trainer_shim/role_source.h"

#include <memory>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

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
    EXPECT_EQ(*counts_->Get(step), 1 + step % 3);
  }
  EXPECT_EQ(asked_, 4);
}

TEST_F(MicroBatchCountsTest, KnowsTheLastNotedStepsWithoutAsking) {
  const uint64_t steps = MicroBatchCounts::kKnownSteps + 1;
  for (uint64_t step = 0; step < steps; ++step) {
    counts_->Note(SyntheticSchedule(job_, step));
  }
  for (uint64_t step = 1; step < steps; ++step) {
    EXPECT_EQ(*counts_->Get(step), 1 + step % 3);
  }
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(*counts_->Get(0), 1);
  EXPECT_EQ(asked_, 1);
}

TEST_F(MicroBatchCountsTest, ErrorsEndNothing) {
  empty_ = true;
  EXPECT_THAT(counts_->Get(7).status().message(),
              HasSubstr("step 7 has no micro-batch"));
  empty_ = false;
  answer_ = absl::InvalidArgumentError("no such step");
  EXPECT_THAT(counts_->Get(8).status().message(), HasSubstr("no such step"));
  answer_ = absl::OkStatus();
  EXPECT_EQ(*counts_->Get(8), 3);
}

// A server that is away: the wait for it is the clock's, which never advances.
TEST_F(MicroBatchCountsTest, CancelEndsTheWait) {
  answer_ = absl::UnavailableError("restarting");
  counts_->Cancel();
  EXPECT_EQ(counts_->Get(1).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace ballast
