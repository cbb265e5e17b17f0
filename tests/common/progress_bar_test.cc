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

}  // namespace
}  // namespace ballast
