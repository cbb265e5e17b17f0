#include "client/ballastctl/commands.h"

#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/message_json.h"
#include "common/status_macros.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kExamples[] =
    "  ballastctl --server 127.0.0.1:7070 samples --step 812\n"
    "  ballastctl --server 127.0.0.1:7070 samples --step 800 --steps 20 "
    "--json\n"
    "\n"
    "One line a sample, in order of position: step, position,\n"
    "SOURCE:ORDINAL, FILE at byte OFFSET; of Parquet and JSON\n"
    "FILE:NUMBER, its row, line or element, from 1. The byte of a row\n"
    "is that of its row group. JSON keys: step, position, source,\n"
    "ordinal, file, offset, number (0 in tars).";

struct Options {
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
  for (uint64_t step = first; step < first + steps; ++step) {
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
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      line->program(), "samples",
      "Names the samples that a step trains on, with source, file and offset.",
      kExamples, [server, options]() -> absl::Status {
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
