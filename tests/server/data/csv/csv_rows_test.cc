// The cases of RFC 4180, section 2.
#include "server/data/csv/csv_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Values(absl::string_view row, char separator = ',') {
  const auto values = ParseRow(row, separator);
  return values.ok() ? *values : std::vector<std::string>{"fault"};
}

TEST(CsvRowsTest, SplitsRows) {
  EXPECT_THAT(Values("aaa,bbb,ccc\r\n"), ElementsAre("aaa", "bbb", "ccc"));
  EXPECT_THAT(Values("aaa,,"), ElementsAre("aaa", "", ""));
  EXPECT_THAT(Values(R"("aaa","b
bb","c,c"
)"),
              ElementsAre("aaa", "b\nbb", "c,c"));
  EXPECT_THAT(Values(R"("a""b",c)"), ElementsAre("a\"b", "c"));
  EXPECT_THAT(Values("a\tb,c\n", '\t'), ElementsAre("a", "b,c"));
}

TEST(CsvRowsTest, RefusesWhatIsAmbiguous) {
  EXPECT_THAT(Values(R"("a"b,c)"), ElementsAre("fault"));
  EXPECT_THAT(Values(R"("a,c)"), ElementsAre("fault"));
}

TEST(CsvRowsTest, FindsTheEndOfARow) {
  EXPECT_EQ(RowLength("a,b\nc", false), 4);
  EXPECT_EQ(RowLength("a,\"b\nc\"\nd", false), 8);
  EXPECT_EQ(RowLength("a,b", false), 0);
  EXPECT_EQ(RowLength("a,b", true), 3);
  EXPECT_EQ(FindSeparator("a\tb\tc,d"), '\t');
  EXPECT_EQ(FindSeparator("a,b"), ',');
}

}  // namespace
}  // namespace ballast
