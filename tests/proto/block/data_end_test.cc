#include "proto/block/block_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(DataEndTest, WithoutAnEndAllStepsHaveData) {
  const v1::Job job;
  EXPECT_EQ(*StepsWithData(job, 5, 0), 0u);
  EXPECT_EQ(*StepsWithData(job, UINT64_MAX, 7), 7u);
}

TEST(DataEndTest, StepsAreCutAtTheEnd) {
  v1::Job job;
  job.set_end_step(10);
  EXPECT_EQ(*StepsWithData(job, 0, 0), 10u);
  EXPECT_EQ(*StepsWithData(job, 0, 10), 10u);
  EXPECT_EQ(*StepsWithData(job, 4, 5), 5u);
  EXPECT_EQ(*StepsWithData(job, 4, UINT64_MAX), 6u);
  EXPECT_EQ(*StepsWithData(job, 9, 0), 1u);
  for (const uint64_t step : {uint64_t{10}, uint64_t{11}, UINT64_MAX}) {
    const auto none = StepsWithData(job, step, 1);
    EXPECT_EQ(none.status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(none.status().message()),
                HasSubstr("the data end before step 10"));
  }
}

}  // namespace
}  // namespace ballast
