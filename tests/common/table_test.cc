#include "common/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

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

TEST(TableTest, CellsAreOfOneLine) {
  Table table({{"name", Table::kLeft}});
  table.AddRow({"a\nb\x1b[2J"});
  EXPECT_EQ(table.ToString(), "name\n-----------\na\\nb\\x1b[2J\n");
}

// ECMA-48 names the controls of 8 bits (U+0080 to U+009F) beside those of 7;
// UAX 9 the marks of direction.
TEST(OneLineTest, EscapesWhatControlsATerminal) {
  EXPECT_EQ(OneLine("a\n\r\t\x1b[31m\x7f"), "a\\n\\r\\t\\x1b[31m\\x7f");
  EXPECT_EQ(OneLine("\u009b31m \u0085"), "\\x9b31m \\x85");
  EXPECT_EQ(OneLine("\x9b" "31m"), "\\x9b31m");  // not UTF-8
  EXPECT_EQ(OneLine("\u2028\u2029"), "\\u2028\\u2029");
  EXPECT_EQ(OneLine("\u202egpj\u2066\u200f\u061c"),
            "\\u202egpj\\u2066\\u200f\\u061c");
  EXPECT_EQ(OneLine(absl::string_view("\0", 1)), "\\x00");
}

TEST(OneLineTest, KeepsAllOtherBytes) {
  for (const absl::string_view text :
       {"", "h\u00e9 \u4e2d \U0001f600", "\xff\xc3", "\xe2\xbf", "\\x1b"}) {
    EXPECT_EQ(OneLine(text), text);
  }
}

TEST(PrintLineTest, AddsOneLine) {
  testing::internal::CaptureStdout();
  PrintLine("bad: ", 7, " \x1b[2Kok\nI forged");
  std::cout.flush();
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "bad: 7 \\x1b[2Kok\\nI forged\n");
}

TEST(TableTest, WithoutRowsShowsTitles) {
  EXPECT_EQ(Table({{"a"}, {"b"}}).ToString(), "a  b\n-  -\n");
}

}  // namespace

}  // namespace ballast
