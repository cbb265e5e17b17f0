#include "common/table.h"

#include <gtest/gtest.h>

#include <cmath>

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

TEST(TableTest, AlignsColumns) {
  Table table({{"module", Table::kLeft}, {"load"}, {"note", Table::kLeft}});
  table.AddRow({"vision", "12.50", "héavy"});
  table.AddRow({"ö", "100.25"});
  table.AddRow({"sum", "112.75", "x", "dropped"});
  EXPECT_EQ(table.ToString(),
            "module    load  note\n"
            "------  ------  -----\n"
            "vision   12.50  héavy\n"
            "ö       100.25\n"
            "sum     112.75  x\n");
}

TEST(TableTest, WithoutRowsShowsTitles) {
  EXPECT_EQ(Table({{"a"}, {"b"}}).ToString(), "a  b\n-  -\n");
}

}  // namespace

}  // namespace ballast
