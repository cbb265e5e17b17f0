#include "server/command/plan.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "common/status_macros.h"
#include "proto/schedule/schedule_json.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"
#include "server/command/plan_changes.h"
#include "server/config/config_loader.h"
#include "server/job/job_setup.h"

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

}  // namespace ballast
