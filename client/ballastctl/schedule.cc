#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/ballastctl/commands.h"
#include "common/message_fields.h"
#include "common/status_macros.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

struct Options {
  uint64_t step = 0;
  uint64_t steps = 0;  // 0: not given
  std::string split = "train";
  bool watch = false;
  bool json = false;
};

constexpr char kScheduleExamples[] =
    "  ballastctl --server 127.0.0.1:7070 schedule --step 0\n"
    "  ballastctl --server 127.0.0.1:7070 schedule --step 10 --steps 5 --json\n"
    "  ballastctl --server 127.0.0.1:7070 schedule --watch --step 10\n"
    "\n"
    "JSON keys, the same bytes as `ballast-server plan --json`: step,\n"
    "fingerprint, micro_batches [{samples [{position, sample "
    "(SOURCE:ORDINAL),\n"
    "images, patches, tokens, label_tokens, cost {module: x}, reader {module:\n"
    "rank}, owner {module: rank}, slot, place}], load {module: {before [per\n"
    "rank], after [per rank]}}}], totals {tokens, tokens_squared,\n"
    "label_tokens, patches, images}, split (unless it is train).";

absl::Status Print(const v1::StepSchedule& schedule, bool json,
                   std::ostream* out) {
  *out << (json ? ScheduleToJson(schedule) + "\n" : ScheduleToTable(schedule));
  return Flush(*out);
}

}  // namespace

absl::Status PrintSchedules(LoaderClient* client, uint64_t first,
                            uint64_t steps, bool json, std::ostream* out,
                            v1::Split split) {
  for (uint64_t i = 0; i < steps; ++i) {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                             client->GetSchedule(first + i, split,
                                                 LoaderClient::Use::kLooks));
    BALLAST_RETURN_IF_ERROR(Print(schedule, json, out));
  }
  return absl::OkStatus();
}

absl::Status WatchSchedules(LoaderClient* client, uint64_t first,
                            uint64_t steps, bool json, std::ostream* out,
                            v1::Split split) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<ScheduleWatcher> watcher,
                           client->WatchSchedule(first, steps, split));
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<v1::StepSchedule> schedule,
                             watcher->Next());
    if (!schedule.has_value()) return absl::OkStatus();
    BALLAST_RETURN_IF_ERROR(Print(*schedule, json, out));
  }
}

void AddSchedule(CommandLine* line,
                 std::shared_ptr<const ServerOption> server) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      line->program(), "schedule",
      "Prints the schedule of a step: who reads and who owns each sample, and\n"
      "the load of each rank before and after.",
      kScheduleExamples, [server, options]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto client, GetClient(*server));
        const v1::Split split = *ParseSplit(options->split);
        if (options->watch) {
          return WatchSchedules(client.get(), options->step, options->steps,
                                options->json, &std::cout, split);
        }
        return PrintSchedules(client.get(), options->step,
                              std::max<uint64_t>(options->steps, 1),
                              options->json, &std::cout, split);
      });
  command->AddWholeNumber("--step", &options->step, "first step").ShowDefault();
  command->AddWholeNumber(
      "--steps", &options->steps,
      "number of steps (default 1; with --watch without end)", 1);
  command->AddText("--split", &options->split, "whose schedule")
      .OneOf({"train", "valid", "test"})
      .ShowDefault();
  command->AddFlag("--watch", &options->watch,
                   "one step after the other as the server publishes them, "
                   "until interrupted");
  command->AddFlag("--json", &options->json, "one JSON object a step");
}

namespace {

using Json = nlohmann::ordered_json;

constexpr char kSamplesExamples[] =
    "  ballastctl --server 127.0.0.1:7070 samples --step 812\n"
    "  ballastctl --server 127.0.0.1:7070 samples --step 800 --steps 20 "
    "--json\n"
    "\n"
    "One line a sample, in order of position: step, position,\n"
    "SOURCE:ORDINAL, FILE at byte OFFSET; of Parquet and JSON\n"
    "FILE:NUMBER, its row, line or element, from 1. A row's byte is\n"
    "where its row group begins. JSON keys: step, position, source,\n"
    "ordinal, file, offset, number (0 in tars).";

struct SamplesOptions {
  uint64_t step = 0;
  uint64_t steps = 1;
  std::string split = "train";
  bool json = false;
};

std::string GetLine(uint64_t step, const v1::GetSamplesResponse::Sample& sample,
                    bool json) {
  if (json) {
    Json line = {{"step", step}};
    line.update(ToJson(sample));
    return line.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return absl::StrCat(
      "step ", step, "  position ", sample.position(), "  ", sample.source(),
      ":", sample.ordinal(), "  ", sample.file(),
      sample.number() == 0 ? "" : absl::StrCat(":", sample.number()),
      " at byte ", sample.offset());
}

}  // namespace

absl::Status PrintSamples(QueryClient* client, uint64_t first, uint64_t steps,
                          v1::Split split, bool json, std::ostream* out) {
  for (uint64_t i = 0; i < steps; ++i) {
    const uint64_t step = first + i;
    uint32_t done = 0;
    while (true) {
      BALLAST_ASSIGN_OR_RETURN(const v1::GetSamplesResponse answer,
                               client->GetSamples(step, split, done));
      for (const auto& sample : answer.samples()) {
        *out << GetLine(step, sample, json) << "\n";
      }
      done += answer.samples_size();
      if (answer.samples().empty() || done >= answer.step_samples()) break;
    }
    BALLAST_RETURN_IF_ERROR(Flush(*out));
  }
  return absl::OkStatus();
}

void AddSamples(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  auto options = std::make_shared<SamplesOptions>();
  Command* command = line->AddCommand(
      line->program(), "samples",
      "Names the samples that a step trains on, with source, file and offset.",
      kSamplesExamples, [server, options]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto client, GetQueryClient(*server));
        return PrintSamples(client.get(), options->step, options->steps,
                            *ParseSplit(options->split), options->json,
                            &std::cout);
      });
  command->AddWholeNumber("--step", &options->step, "first step").Required();
  command->AddWholeNumber("--steps", &options->steps, "number of steps", 1)
      .ShowDefault();
  command->AddText("--split", &options->split, "whose steps")
      .OneOf({"train", "valid", "test"})
      .ShowDefault();
  command->AddFlag("--json", &options->json, "one JSON object a sample");
}

}  // namespace ballast
