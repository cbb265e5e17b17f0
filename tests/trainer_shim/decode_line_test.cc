#include "trainer_shim/decode_line.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "tests/fakes/no_threads.h"

namespace ballast {
namespace {

// Notes the steps that were taken: "feed 0", "complete 0". A step waits for its
// permit if it is held back.
class FakeSteps final : public DecodeLine::Steps {
 public:
  absl::Status Prepare() override { return prepared_; }
  absl::Status Feed(size_t place) override {
    return Take(absl::StrCat("feed ", place));
  }
  absl::Status Complete(size_t place) override {
    return Take(absl::StrCat("complete ", place));
  }

  void HoldBack(const std::string& step) {
    MutexLock lock(&mutex_);
    held_ = step;
  }
  void Permit() {
    HoldBack("");
    Notify();
  }
  void FailAt(const std::string& step) {
    MutexLock lock(&mutex_);
    bad_ = step;
  }
  // The steps begun, once `step` is.
  std::vector<std::string> BegunUntil(const std::string& step) {
    MutexLock lock(&mutex_);
    while (begun_.empty() || begun_.back() != step) changed_.Wait(&mutex_);
    return begun_;
  }
  std::vector<std::string> begun() {
    MutexLock lock(&mutex_);
    return begun_;
  }

  absl::Status prepared_;

 private:
  absl::Status Take(const std::string& step) {
    MutexLock lock(&mutex_);
    begun_.push_back(step);
    changed_.NotifyAll();
    while (held_ == step) changed_.Wait(&mutex_);
    return step == bad_ ? absl::DataLossError(step) : absl::OkStatus();
  }
  void Notify() {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> begun_ ABSL_GUARDED_BY(mutex_);
  std::string held_ ABSL_GUARDED_BY(mutex_);
  std::string bad_ ABSL_GUARDED_BY(mutex_);
};

TEST(DecodeLineTest, NothingBegunIsFinished) {
  FakeSteps steps;
  const auto line = *DecodeLine::Create(&steps);
  EXPECT_TRUE(line->Finish().ok());
  EXPECT_TRUE(steps.begun().empty());
}

TEST(DecodeLineTest, BatchesTakePlacesInTurnAndBothSteps) {
  FakeSteps steps;
  const auto line = *DecodeLine::Create(&steps);
  std::vector<std::string> want;
  for (size_t batch = 0; batch < 7; ++batch) {
    const size_t place = batch % DecodeLine::kBatches;
    EXPECT_EQ(line->next(), place);
    line->Begin();
    EXPECT_TRUE(line->Finish().ok());
    want.push_back(absl::StrCat("feed ", place));
    want.push_back(absl::StrCat("complete ", place));
  }
  EXPECT_EQ(steps.begun(), want);
}

TEST(DecodeLineTest, FeedsTheNextBatchWhileOneIsCompleted) {
  FakeSteps steps;
  steps.HoldBack("complete 0");
  const auto line = *DecodeLine::Create(&steps);
  line->Begin();
  steps.BegunUntil("complete 0");
  line->Begin();
  EXPECT_EQ(steps.BegunUntil("feed 1"),
            (std::vector<std::string>{"feed 0", "complete 0", "feed 1"}));
  steps.Permit();
  EXPECT_TRUE(line->Finish().ok());
  EXPECT_TRUE(line->Finish().ok());
}

// A batch that waits for its files holds up nothing of the batch before it.
TEST(DecodeLineTest, CompletesABatchWhileTheNextWaitsForItsFiles) {
  FakeSteps steps;
  steps.HoldBack("feed 1");
  const auto line = *DecodeLine::Create(&steps);
  line->Begin();
  line->Begin();
  EXPECT_TRUE(line->Finish().ok());
  steps.Permit();
  EXPECT_TRUE(line->Finish().ok());
}

TEST(DecodeLineTest, EachBatchHasItsOwnStatus) {
  FakeSteps steps;
  steps.FailAt("feed 0");
  const auto line = *DecodeLine::Create(&steps);
  line->Begin();
  line->Begin();
  EXPECT_EQ(line->Finish().message(), "feed 0");
  EXPECT_TRUE(line->Finish().ok());
  // What could not be fed is not completed.
  for (const std::string& step : steps.begun()) EXPECT_NE(step, "complete 0");
  steps.FailAt("complete 2");
  line->Begin();
  EXPECT_EQ(line->Finish().message(), "complete 2");
}

TEST(DecodeLineTest, NothingIsDoneInAThreadThatCouldNotBePrepared) {
  FakeSteps steps;
  steps.prepared_ = absl::InternalError("no device");
  const auto line = *DecodeLine::Create(&steps);
  line->Begin();
  EXPECT_EQ(line->Finish().message(), "no device");
  EXPECT_TRUE(steps.begun().empty());
}

TEST(DecodeLineTest, EndsWithTheBatchesThatAreBegun) {
  FakeSteps steps;
  steps.HoldBack("feed 0");
  auto line = *DecodeLine::Create(&steps);
  line->Begin();
  line->Begin();
  steps.BegunUntil("feed 0");
  steps.Permit();
  line = nullptr;
  const std::vector<std::string> begun = steps.begun();
  EXPECT_EQ(begun.size(), 4u);
  EXPECT_EQ(begun.back(), "complete 1");
}

TEST(DecodeLineTest, AProcessAtItsLimitOfThreadsIsAnError) {
  FakeSteps steps;
  const NoThreads none;
  EXPECT_TRUE(absl::IsResourceExhausted(DecodeLine::Create(&steps).status()));
}

}  // namespace
}  // namespace ballast
