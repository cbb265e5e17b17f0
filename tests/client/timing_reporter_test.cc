#include "client/timing_reporter.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

// Two servers with given answers, and the number of calls of each.
class TimingReporterTest : public ::testing::Test {
 protected:
  TimingReporterTest() {
    std::vector<LoaderClient*> servers;
    for (int i = 0; i < 2; ++i) {
      FakeLoader loader;
      loader.on_report = [this, i](const v1::StepTiming&) {
        ++asked_[i];
        return answers_[i];
      };
      clients_.push_back(FakeLoaderClient(loader));
      servers.push_back(clients_.back().get());
    }
    reporter_ = std::make_unique<TimingReporter>(servers, &clock_);
  }

  absl::Status Report() {
    return reporter_->Report(v1::StepTiming(), kSyntheticFingerprint);
  }

  const absl::Status hung_ = absl::DeadlineExceededError("hung");
  absl::Status answers_[2];
  int asked_[2] = {};
  ManualClock clock_;
  std::vector<std::unique_ptr<LoaderClient>> clients_;
  std::unique_ptr<TimingReporter> reporter_;
};

TEST_F(TimingReporterTest, AHungFirstServerDelaysOnlyOnce) {
  answers_[0] = hung_;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Report().ok());
  EXPECT_EQ(asked_[0], 1);
  EXPECT_EQ(asked_[1], 100);
  // The second fails: the first is asked again.
  answers_[0] = absl::OkStatus();
  answers_[1] = absl::UnavailableError("away");
  EXPECT_TRUE(Report().ok());
  EXPECT_TRUE(Report().ok());
  EXPECT_EQ(asked_[0], 3);
  EXPECT_EQ(asked_[1], 101);
}

TEST_F(TimingReporterTest, ServersThatHangAreSkipped) {
  answers_[0] = answers_[1] = hung_;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Report().code(), i < TimingReporter::kTolerated
                                   ? absl::StatusCode::kDeadlineExceeded
                                   : absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(asked_[0], TimingReporter::kTolerated);
  EXPECT_EQ(asked_[1], TimingReporter::kTolerated);
  // An hour of reports costs some twenty attempts.
  for (int i = 0; i < 3600; ++i) {
    clock_.Advance(absl::Seconds(1));
    EXPECT_FALSE(Report().ok());
  }
  EXPECT_LT(asked_[0], 25);
  EXPECT_GT(asked_[0], 10);
  answers_[0] = answers_[1] = absl::OkStatus();
  clock_.Advance(absl::Minutes(5));
  EXPECT_TRUE(Report().ok());
  EXPECT_TRUE(Report().ok());
}

TEST_F(TimingReporterTest, ARefusalIsTheAnswer) {
  answers_[0] = absl::InvalidArgumentError("no such rank");
  EXPECT_EQ(Report(), answers_[0]);
  EXPECT_EQ(asked_[1], 0);
}

}  // namespace
}  // namespace ballast
