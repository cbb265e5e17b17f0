#include "server/config/row_filter.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(RowFilterTest, ComparesNumbers) {
  struct Case {
    const char* filter;
    bool below, equal, above;  // a value of 2, 3 and 4 passes
  };
  for (const Case& c : {Case{"a==3", false, true, false},
                        {" a != 3 ", true, false, true},
                        {"a <3", true, false, false},
                        {"a<= 3.0", true, true, false},
                        {"a>3", false, false, true},
                        {"a >= 3e0", false, true, true}}) {
    const auto filter = ParseRowFilter(c.filter);
    ASSERT_TRUE(filter.ok()) << filter.status();
    EXPECT_EQ(filter->column, "a");
    EXPECT_FALSE(filter->is_text);
    EXPECT_EQ(filter->Passes(2), c.below) << c.filter;
    EXPECT_EQ(filter->Passes(3), c.equal) << c.filter;
    EXPECT_EQ(filter->Passes(4), c.above) << c.filter;
    EXPECT_FALSE(filter->Passes("3"));
  }
  // NaN is unequal to everything, and in no order.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(ParseRowFilter("a >= 0")->Passes(nan));
  EXPECT_TRUE(ParseRowFilter("a != 0")->Passes(nan));
}

TEST(RowFilterTest, ComparesTexts) {
  const auto filter = ParseRowFilter("the source != \"a <= b\"");
  ASSERT_TRUE(filter.ok()) << filter.status();
  EXPECT_EQ(filter->column, "the source");
  EXPECT_TRUE(filter->is_text);
  EXPECT_EQ(filter->text, "a <= b");
  EXPECT_TRUE(filter->Passes("a"));
  EXPECT_FALSE(filter->Passes("a <= b"));
  EXPECT_FALSE(filter->Passes(1));
  EXPECT_TRUE(ParseRowFilter("s > \"a\"")->Passes("b"));
  EXPECT_TRUE(ParseRowFilter("s == \"\"")->Passes(""));
}

// Doubles hold them as their neighbours, which would pass as well.
TEST(RowFilterTest, LargeNumbersHaveAnOrderAlone) {
  EXPECT_TRUE(ParseRowFilter("id == 9007199254740991")->Passes(0x1p53 - 1));
  EXPECT_TRUE(ParseRowFilter("time >= 1700000000000000000")->Passes(1.8e18));
}

TEST(RowFilterTest, RefusesOthers) {
  for (const char* filter :
       {"", "a", "a 3", "== 3", "a = 3", "a ! 3", "a >=", "a >= b", "a == 'b'",
        "a == \"b", "a == \"", "a == \"b\"c\"", "a > inf", "a > nan", "a => 3",
        "a >= 1e999", "id == 9007199254740993", "id != -9007199254740993"}) {
    const auto parsed = ParseRowFilter(filter);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument)
        << filter;
  }
  for (const char* filter : {"ok == true", "ok != False"}) {
    const absl::Status status = ParseRowFilter(filter).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("1 for true and 0 for false"));
  }
}

}  // namespace
}  // namespace ballast
