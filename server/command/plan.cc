#include "server/command/plan.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/job.pb.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"
#include "server/config/config_loader.h"
#include "server/job/job_setup.h"
#include "server/schedule/split_sources.h"
#include "server/schedule/step_plan.h"

namespace ballast {

namespace {

struct Options {
  std::string config;
  uint64_t step = 0;
  uint64_t steps = 1;
  std::string split = "train";
  bool changes = false;
  bool json = false;
};

absl::Status Flush() {
  std::cout.flush();
  if (std::cout) return absl::OkStatus();
  return absl::UnavailableError("cannot write to standard output");
}

absl::Status Plan(const Options& options) {
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  if (options.changes) {
    BALLAST_ASSIGN_OR_RETURN(const std::string changes,
                             DescribeChanges(config.config, options.json));
    std::cout << changes;
    return Flush();
  }
  BALLAST_ASSIGN_OR_RETURN(const OpenedJob job, OpenJob(config));
  BALLAST_ASSIGN_OR_RETURN(const Scheduler* const scheduler,
                           job.scheduler->OfSplit(*ParseSplit(options.split)));
  for (uint64_t i = 0; i < options.steps; ++i) {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                             scheduler->Schedule(options.step + i));
    std::cout << (options.json ? ScheduleToJson(schedule) + "\n"
                               : ScheduleToTable(schedule));
  }
  return Flush();
}

}  // namespace

void AddPlan(CommandLine* line) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      line->program(), "plan",
      R"(Prints the schedule of a step: who reads and who owns each sample, and the load
of each rank before and after balancing. Needs the index, but no server.
With --changes: the steps of train at which the mixture or the batch size
changes or data are left out, without an index. JSON keys: step, position (its
first), samples (a step), left_out (samples before it), weights {source: x}.)",
      "  ballast-server plan --config ballast.yaml --step 0\n"
      "  ballast-server plan --config ballast.yaml --step 10 --steps 5 --json\n"
      "  ballast-server plan --config ballast.yaml --step 0 --split valid\n"
      "  ballast-server plan --config ballast.yaml --changes",
      [options] { return Plan(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command->AddWholeNumber("--step", &options->step, "first step").ShowDefault();
  command->AddWholeNumber("--steps", &options->steps, "number of steps", 1)
      .ShowDefault();
  command->AddText("--split", &options->split, "whose schedule")
      .OneOf({"train", "valid", "test"})
      .ShowDefault();
  command->AddFlag("--changes", &options->changes,
                   "the steps at which order and batch change, instead of "
                   "schedules");
  command->AddFlag("--json", &options->json, "print one JSON object a step");
}

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
