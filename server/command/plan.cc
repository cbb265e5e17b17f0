#include "server/command/plan.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "common/status_macros.h"
#include "proto/schedule/schedule_json.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"
#include "server/config/config_loader.h"
#include "server/job/job_setup.h"

namespace ballast {
namespace {

struct Options {
  std::string config;
  uint64_t step = 0;
  uint64_t steps = 1;
  std::string split = "train";
  bool json = false;
};

absl::Status Plan(const Options& options) {
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  BALLAST_ASSIGN_OR_RETURN(const OpenedJob job, OpenJob(config));
  BALLAST_ASSIGN_OR_RETURN(const Scheduler* const scheduler,
                           job.scheduler->OfSplit(*ParseSplit(options.split)));
  for (uint64_t i = 0; i < options.steps; ++i) {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                             scheduler->Schedule(options.step + i));
    std::cout << (options.json ? ScheduleToJson(schedule) + "\n"
                               : ScheduleToTable(schedule));
  }
  std::cout.flush();
  if (!std::cout) {
    return absl::UnavailableError("cannot write to standard output");
  }
  return absl::OkStatus();
}

}  // namespace

void AddPlan(CommandLine* line) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      line->program(), "plan",
      R"(Prints the schedule of a step: who reads and who owns each sample, and the load
of each rank before and after balancing. Needs the index, but no server.)",
      "  ballast-server plan --config ballast.yaml --step 0\n"
      "  ballast-server plan --config ballast.yaml --step 10 --steps 5 --json\n"
      "  ballast-server plan --config ballast.yaml --step 0 --split valid",
      [options] { return Plan(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command->AddWholeNumber("--step", &options->step, "first step").Required();
  command->AddWholeNumber("--steps", &options->steps, "number of steps", 1)
      .ShowDefault();
  command->AddText("--split", &options->split, "whose schedule")
      .OneOf({"train", "valid", "test"})
      .ShowDefault();
  command->AddFlag("--json", &options->json, "print one JSON object a step");
}

}  // namespace ballast
