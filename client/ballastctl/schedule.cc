#include "client/ballastctl/schedule.h"

#include <iostream>

#include "common/status_macros.h"
#include "proto/schedule_json.h"
#include "proto/schedule_table.h"

namespace ballast {
namespace {

struct Options {
  uint64_t step = 0;
  uint64_t steps = 1;
  bool json = false;
};

constexpr char kExamples[] =
    "  ballastctl --server 127.0.0.1:7070 schedule --step 0\n"
    "  ballastctl --server 127.0.0.1:7070 schedule --step 10 --steps 5 --json\n"
    "\n"
    "JSON keys, the same bytes as `ballast-server plan --json`: step,\n"
    "fingerprint, micro_batches [{samples [{position, sample "
    "(SOURCE:ORDINAL),\n"
    "images, patches, tokens, label_tokens, cost {module: x}, reader {module:\n"
    "rank}, owner {module: rank}, slot, place}], load {module: {before [per\n"
    "rank], after [per rank]}}, totals}], totals {tokens, tokens_squared,\n"
    "label_tokens, patches, images}.";

}  // namespace

absl::Status PrintSchedules(LoaderClient* client, uint64_t first,
                            uint64_t steps, bool json, std::ostream* out) {
  for (uint64_t i = 0; i < steps; ++i) {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                             client->GetSchedule(first + i));
    *out << (json ? ScheduleToJson(schedule) + "\n"
                  : ScheduleToTable(schedule));
  }
  out->flush();
  if (!*out) return absl::UnavailableError("cannot write standard output");
  return absl::OkStatus();
}

void AddSchedule(CommandLine* line, std::shared_ptr<const std::string> server) {
  auto options = std::make_shared<Options>();
  CLI::App* command = line->AddCommand(
      line->app(), "schedule",
      "Prints the schedule of a step: who reads and who owns each sample, and\n"
      "the load of each rank before and after.",
      kExamples, [server, options] {
        return PrintSchedules(LoaderClient::Create(*server).get(),
                              options->step, options->steps, options->json,
                              &std::cout);
      });
  command->add_option("--step", options->step, "first step")->required();
  command->add_option("--steps", options->steps, "number of steps (default 1)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->json, "one JSON object a step");
}

}  // namespace ballast
