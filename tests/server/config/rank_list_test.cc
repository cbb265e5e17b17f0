#include "server/config/topology.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ParseRankList, ReadsRanksAndRanges) {
  EXPECT_THAT(ParseRankList("").value(), IsEmpty());
  EXPECT_THAT(ParseRankList(" ").value(), IsEmpty());
  EXPECT_THAT(ParseRankList("7").value(), ElementsAre(7));
  EXPECT_THAT(ParseRankList("0-3,6").value(), ElementsAre(0, 1, 2, 3, 6));
  EXPECT_THAT(ParseRankList(" 6 , 0 - 1 ").value(), ElementsAre(0, 1, 6));
  EXPECT_THAT(ParseRankList("5-5").value(), ElementsAre(5));
  EXPECT_EQ(ParseRankList("0-1048575").value().size(), size_t{1} << 20);
}

TEST(ParseRankList, NamesTheFault) {
  struct Case {
    const char* text;
    const char* culprit;
  };
  for (const Case& c :
       {Case{"0-3,x", "\"x\""}, Case{"1,", "\"\""}, Case{",", "\"\""},
        Case{"-1", "\"\""}, Case{"+1", "\"+1\""}, Case{"1-", "\"\""},
        Case{"1-2-3", "\"2-3\""}, Case{"1.5", "\"1.5\""},
        Case{"3-1", "3-1 falls"}, Case{"0-3,2", "rank 2 stands twice"},
        Case{"1048576", "1048576"}, Case{"0-99999999999", "99999999999"},
        Case{"a\nb", "a\\nb"}}) {
    const auto ranks = ParseRankList(c.text);
    EXPECT_EQ(ranks.status().code(), absl::StatusCode::kInvalidArgument)
        << c.text;
    EXPECT_THAT(std::string(ranks.status().message()), HasSubstr(c.culprit));
  }
}

TEST(FormatRankList, JoinsRanges) {
  EXPECT_EQ(FormatRankList({}), "");
  EXPECT_EQ(FormatRankList({0}), "0");
  EXPECT_EQ(FormatRankList({0, 1, 2, 3, 6}), "0-3,6");
  EXPECT_EQ(FormatRankList({1, 3, 4}), "1,3-4");
}

}  // namespace
}  // namespace ballast
