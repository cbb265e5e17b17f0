#include "proto/schedule/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(SplitTest, EachNameIsReadBack) {
  for (int number = 0; number < v1::Split_ARRAYSIZE; ++number) {
    const auto split = static_cast<v1::Split>(number);
    EXPECT_EQ(ParseSplit(SplitName(split)), split);
  }
  EXPECT_EQ(ParseSplit("validation"), std::nullopt);
  EXPECT_EQ(ParseSplit(""), std::nullopt);
}

TEST(SplitTest, OnlyOtherSplitsThanTrainAreNamedInMessages) {
  EXPECT_EQ(SplitWord(v1::SPLIT_TRAIN), "");
  EXPECT_EQ(SplitWord(v1::SPLIT_VALID), "valid ");
}

TEST(SplitTest, ASplitWithoutSourcesIsRefusedWithThoseThereAre) {
  v1::Job job;
  job.add_splits(v1::SPLIT_TRAIN);
  job.add_splits(v1::SPLIT_TEST);
  EXPECT_TRUE(CheckSplit(job, v1::SPLIT_TRAIN).ok());
  EXPECT_TRUE(CheckSplit(job, v1::SPLIT_TEST).ok());
  const absl::Status status = CheckSplit(job, v1::SPLIT_VALID);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "split valid was asked for, but no source has `split: valid` "
            "(sources[].split); the job has train, test");
}

TEST(SplitTest, AServerThatTellsNoSplitsHasTrain) {
  EXPECT_TRUE(CheckSplit(v1::Job(), v1::SPLIT_TRAIN).ok());
  EXPECT_THAT(std::string(CheckSplit(v1::Job(), v1::SPLIT_VALID).message()),
              HasSubstr("the job has train"));
  EXPECT_THAT(
      std::string(CheckSplit(v1::Job(), static_cast<v1::Split>(7)).message()),
      HasSubstr("number 7"));
}

using ::testing::HasSubstr;

struct Range {
  uint64_t step, position;
  uint32_t samples;
};

v1::Job JobOf(const std::vector<Range>& ranges) {
  v1::Job job;
  job.set_global_batch(8);
  job.set_micro_batch(2);
  for (const auto& [step, position, samples] : ranges) {
    v1::StepRange* range = job.add_step_ranges();
    range->set_first_step(step);
    range->set_first_position(position);
    range->set_samples(samples);
  }
  return job;
}

TEST(StepRangesTest, WithoutRangesEveryStepHasTheGlobalBatch) {
  const v1::Job job = JobOf({});
  EXPECT_EQ(SamplesOfStep(job, 7), 8u);
  EXPECT_EQ(MostSamplesOfAStep(job), 8u);
  EXPECT_EQ(*FirstPosition(job, 7), 56u);
  EXPECT_EQ(StepOfPosition(job, 63), 7u);
  EXPECT_EQ(StepOfPosition(job, 64), 8u);
  EXPECT_EQ(StepsBefore(job, 63), 7u);
  EXPECT_EQ(StepsBefore(job, 64), 8u);
  EXPECT_EQ(SamplesBefore(job, 7), 56u);
}

// Compares with a walk through every step and position. Positions 10..15 and
// 28..30 are left out.
TEST(StepRangesTest, AgreesWithAWalk) {
  const v1::Job job = JobOf({{0, 0, 2}, {5, 16, 4}, {8, 31, 4}, {9, 35, 6}});
  const auto size_of = [](uint64_t step) {
    return step < 5 ? 2u : step < 9 ? 4u : 6u;
  };
  EXPECT_EQ(MostSamplesOfAStep(job), 6u);
  uint64_t position = 0, samples = 0;
  for (uint64_t step = 0; step < 20; ++step) {
    const auto expect_left_out = [&](uint64_t end) {
      for (; position < end; ++position) {
        EXPECT_EQ(StepOfPosition(job, position), std::nullopt) << position;
        EXPECT_EQ(StepsBefore(job, position), step) << position;
      }
    };
    if (step == 5) expect_left_out(16);
    if (step == 8) expect_left_out(31);
    EXPECT_EQ(SamplesOfStep(job, step), size_of(step)) << step;
    EXPECT_EQ(*FirstPosition(job, step), position) << step;
    EXPECT_EQ(SamplesBefore(job, step), samples) << step;
    for (uint32_t i = 0; i < size_of(step); ++i, ++position, ++samples) {
      EXPECT_EQ(StepOfPosition(job, position), step) << position;
      EXPECT_EQ(StepsBefore(job, position), step) << position;
    }
  }
  const std::vector<PositionRange> positions = PositionsBefore(job, 10);
  ASSERT_EQ(positions.size(), 4u);
  EXPECT_EQ(positions[1].first, 16u);
  EXPECT_EQ(positions[1].end, 28u);
  EXPECT_EQ(positions[3].first, 35u);
  EXPECT_EQ(positions[3].end, 41u);
}

TEST(StepRangesTest, StepsWithSizesOfTheirOwn) {
  v1::Job job = JobOf({{0, 0, 8}, {3, 24, 0}});
  EXPECT_EQ(SamplesOfStep(job, 2), 8u);
  EXPECT_EQ(SamplesOfStep(job, 3), 0u);
  EXPECT_EQ(SamplesOfStep(job, 99), 0u);
  EXPECT_EQ(MostSamplesOfAStep(job), job.global_batch());
  EXPECT_EQ(*FirstPosition(job, 3), 24u);
  EXPECT_EQ(FirstPosition(job, 4).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(StepOfPosition(job, 23), 2u);
  EXPECT_EQ(StepOfPosition(job, 24), std::nullopt);
  EXPECT_EQ(SamplesBefore(job, 3), 24u);
}

TEST(StepRangesTest, PositionsThatDoNotFit) {
  for (const v1::Job& job : {JobOf({}), JobOf({{0, 0, 2}, {5, 16, 8}})}) {
    EXPECT_TRUE(FirstPosition(job, UINT64_MAX / 8 - 10).ok());
    const auto position = FirstPosition(job, UINT64_MAX / 8 + 10);
    EXPECT_EQ(position.status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(position.status().message()),
                HasSubstr("at 8 samples a step"));
  }
}

}  // namespace

}  // namespace ballast
