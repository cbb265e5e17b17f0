#include "server/command/inspect_balance.h"

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/command/json_lines.h"
#include "server/schedule/balance.h"

namespace ballast {
namespace {

struct Options {
  uint32_t groups = 0;
  std::string algorithm = "refined";
  bool equal_count = false;
};

absl::StatusOr<std::vector<double>> ParseCosts(const nlohmann::json& object) {
  const auto found = object.find("costs");
  if (found == object.end() || !found->is_array()) {
    return absl::InvalidArgumentError(
        "key `costs` is missing or not a list; wanted a list of numbers");
  }
  std::vector<double> costs;
  for (const nlohmann::json& cost : *found) {
    if (!cost.is_number()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cost ", costs.size(), " is ", cost.dump(), "; wanted a number"));
    }
    costs.push_back(cost);
  }
  return costs;
}

absl::StatusOr<nlohmann::ordered_json> Balance(const nlohmann::json& object,
                                               const Options& options) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<double> costs, ParseCosts(object));
  BALLAST_ASSIGN_OR_RETURN(const Groups groups,
                           BalanceSamples(costs, options.groups,
                                          options.algorithm == "lpt"
                                              ? v1::Balance::ALGORITHM_LPT
                                              : v1::Balance::ALGORITHM_REFINED,
                                          options.equal_count));
  return nlohmann::ordered_json{
      {"groups", groups},
      {"load", GroupLoads(costs, groups)},
      {"lower_bound", LoadLowerBound(costs, options.groups)}};
}

}  // namespace

void AddInspectBalance(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      inspect, "balance",
      R"(Partitions costs into groups of even load, as the schedule does.
Reads lines {"costs": [number, …]} from standard input and prints for each
{"groups": [[index, …], …], "load": […], "lower_bound": x}.)",
      R"(  echo '{"costs": [4, 3, 1, 2]}' |
    ballast-server inspect balance --groups 2 --algorithm lpt)",
      [options] {
        return TransformJsonLines(std::cin, std::cout,
                                  [&](const nlohmann::json& object) {
                                    return Balance(object, *options);
                                  });
      });
  command->AddWholeNumber("--groups", &options->groups, "number of groups", 1)
      .Required();
  command
      ->AddText("--algorithm", &options->algorithm,
                "`lpt` is the reference; its groups have equal counts")
      .OneOf({"lpt", "refined"})
      .ShowDefault();
  command->AddFlag("--equal-count", &options->equal_count,
                   "give every group the same number of costs");
}

}  // namespace ballast
