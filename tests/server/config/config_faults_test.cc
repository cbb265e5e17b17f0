// Runs every case of faults.txt; the head of that file describes its format.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/config_loader.h"
#include "server/config/source_fields.h"

namespace ballast {
namespace {

struct FaultCase {
  std::string name;
  std::string yaml;
  std::vector<std::string> faults;
};

std::vector<FaultCase> ReadCases() {
  std::ifstream file("tests/server/config/faults.txt");
  EXPECT_TRUE(file.is_open());
  std::vector<FaultCase> cases;
  bool in_yaml = false;
  std::string line;
  while (std::getline(file, line)) {
    if (absl::StartsWith(line, "=== ")) {
      cases.push_back({line.substr(4), "", {}});
      in_yaml = true;
    } else if (cases.empty()) {
      continue;  // the head
    } else if (line == "---") {
      in_yaml = false;
    } else if (!in_yaml) {
      if (!line.empty()) cases.back().faults.push_back(line);
    } else if (line == "SOURCES") {
      cases.back().yaml +=
          "sources: [{name: a, format: jsonl, path: a.jsonl}]\n";
    } else if (line == "BATCH") {
      cases.back().yaml += "batch: {global: 8, micro: 4}\n";
    } else if (line == "TOPOLOGY") {
      cases.back().yaml +=
          "topology: {modules: {vision: {dp: 2}, language: {dp: 4}}}\n";
    } else {
      absl::StrAppend(&cases.back().yaml, line, "\n");
    }
  }
  return cases;
}

TEST(ConfigFaults, ReportsEveryFault) {
  const std::vector<FaultCase> cases = ReadCases();
  EXPECT_GE(cases.size(), 30u);
  for (const FaultCase& c : cases) {
    SCOPED_TRACE(c.name);
    const auto loaded = ParseConfig(c.yaml, "F", "DIR");
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
    std::vector<std::string> faults;
    for (const absl::string_view line :
         absl::StrSplit(loaded.status().message(), '\n')) {
      EXPECT_TRUE(absl::StartsWith(line, "F:")) << line;
      faults.emplace_back(line.substr(2));
    }
    EXPECT_THAT(faults, testing::ElementsAreArray(c.faults));
  }
}

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
