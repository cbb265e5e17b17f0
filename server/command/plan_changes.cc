#include "server/command/plan_changes.h"

#include <cstdint>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/job.pb.h"
#include "proto/schedule/step_ranges.h"
#include "server/schedule/split_sources.h"
#include "server/schedule/step_plan.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

std::vector<double> WeightsAt(const v1::Config& config, const StepPlan& plan,
                              uint64_t position) {
  std::vector<double> weights;
  for (const uint32_t i : SourcesOfSplit(config, v1::SPLIT_TRAIN)) {
    weights.push_back(config.sources(i).weight());
  }
  for (const SampleOrder::Change& change : plan.mixtures) {
    if (change.first_position <= position) weights = change.weights;
  }
  return weights;
}

}  // namespace

absl::StatusOr<std::string> DescribeChanges(const v1::Config& config,
                                            bool json) {
  BALLAST_ASSIGN_OR_RETURN(const StepPlan plan,
                           PlanSteps(config, v1::SPLIT_TRAIN));
  v1::Job job;
  job.mutable_step_ranges()->Add(plan.steps.begin(), plan.steps.end());
  std::set<uint64_t> steps;
  for (const v1::StepRange& range : plan.steps)
    steps.insert(range.first_step());
  for (const SampleOrder::Change& change : plan.mixtures) {
    // Changes among data that are left out have no step.
    const auto step = StepOfPosition(job, change.first_position);
    if (step.has_value()) steps.insert(*step);
  }
  const std::vector<uint32_t> sources = SourcesOfSplit(config, v1::SPLIT_TRAIN);
  Table table({{"from step"},
               {"position"},
               {"samples a step"},
               {"left out before"},
               {"weights", Table::kLeft}});
  std::string lines;
  for (const uint64_t step : steps) {
    BALLAST_ASSIGN_OR_RETURN(const uint64_t position, FirstPosition(job, step));
    uint64_t left_out = 0;
    if (step > 0) {
      BALLAST_ASSIGN_OR_RETURN(const uint64_t before,
                               FirstPosition(job, step - 1));
      left_out = position - before - SamplesOfStep(job, step - 1);
    }
    const std::vector<double> weights = WeightsAt(config, plan, position);
    Json json_weights = Json::object();
    std::string text;
    for (size_t s = 0; s < sources.size(); ++s) {
      const std::string& name = config.sources(sources[s]).name();
      json_weights[name] = weights[s];
      absl::StrAppend(&text, s == 0 ? "" : ", ", name, " ", weights[s]);
    }
    const uint32_t samples = SamplesOfStep(job, step);
    table.AddRow({absl::StrCat(step), absl::StrCat(position),
                  absl::StrCat(samples), absl::StrCat(left_out), text});
    absl::StrAppend(&lines,
                    Json({{"step", step},
                          {"position", position},
                          {"samples", samples},
                          {"left_out", left_out},
                          {"weights", std::move(json_weights)}})
                        .dump(),
                    "\n");
  }
  return json ? lines : table.ToString();
}

}  // namespace ballast
