#include "common/progress_bar.h"

#include <cmath>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ProgressBarTest, ShowsTheShareThatIsDone) {
  EXPECT_EQ(ProgressBar("docs", 0.5, "7 samples"),
            "\rdocs [###############...............]  50%  7 samples");
  EXPECT_EQ(ProgressBar("docs", 1, "x"),
            "\rdocs [##############################] 100%  x\n");
}

TEST(ProgressBarTest, SharesOutsideZeroToOneAreClamped) {
  EXPECT_EQ(ProgressBar("a", -1, ""), ProgressBar("a", 0, ""));
  EXPECT_EQ(ProgressBar("a", std::nan(""), ""), ProgressBar("a", 0, ""));
  EXPECT_EQ(ProgressBar("a", 3, ""), ProgressBar("a", 1, ""));
}

TEST(ProgressBarTest, TimeLeftFollowsTheShareThatIsDone) {
  EXPECT_EQ(TimeLeft(0.25, 10), "30 s left");
  EXPECT_EQ(TimeLeft(0.5, 300), "5 min left");
  EXPECT_EQ(TimeLeft(0.1, 1200), "3.0 h left");
  EXPECT_EQ(TimeLeft(0, 10), "");
  EXPECT_EQ(TimeLeft(1, 10), "");
  EXPECT_EQ(TimeLeft(std::nan(""), 10), "");
}

}  // namespace
}  // namespace ballast
