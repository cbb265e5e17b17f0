#include "proto/schedule/split.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ballast
