// Runs every case of faults.txt; the head of that file describes its format.

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/config/config_loader.h"

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

}  // namespace
}  // namespace ballast
