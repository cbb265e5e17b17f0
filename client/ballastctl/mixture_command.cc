#include "client/ballastctl/commands.h"

#include <cstdint>
#include <iostream>
#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ballastctl/query_client.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kExamples[] =
    "  ballastctl --server 127.0.0.1:7070 mixture\n"
    "  ballastctl --server 127.0.0.1:7070 mixture --step 5000 --json\n"
    "\n"
    "JSON keys: step, samples (of the steps before; Megatron's\n"
    "consumed_train_samples), sources [{name, size, samples, skipped\n"
    "(order.skips), epochs, share, wanted_share (by the weights of the steps\n"
    "before), weight (of the step, as a share)}].";

double GetEpochs(const v1::GetMixtureResponse::Source& source) {
  if (source.size() == 0) return 0;
  return static_cast<double>(source.samples() + source.skipped()) /
         static_cast<double>(source.size());
}

double GetShare(const v1::GetMixtureResponse::Source& source,
                const v1::GetMixtureResponse& mixture) {
  if (mixture.samples() == 0) return 0;
  return static_cast<double>(source.samples()) /
         static_cast<double>(mixture.samples());
}

struct Options {
  uint64_t step = 0;
  std::optional<Option> has_step;
  std::string split = "train";
  bool json = false;
};

// The step that this server's clients train now: its samples do not count as
// trained yet.
absl::StatusOr<uint64_t> CurrentStep(const ServerOption& server) {
  BALLAST_ASSIGN_OR_RETURN(const auto client, GetQueryClient(server));
  BALLAST_ASSIGN_OR_RETURN(const v1::GetStatusResponse status,
                           client->GetStatus());
  return status.current_step();
}

absl::Status Print(const ServerOption& server, const Options& options) {
  const v1::Split split = *ParseSplit(options.split);
  uint64_t step = options.step;
  if (!options.has_step->given() && split == v1::SPLIT_TRAIN) {
    BALLAST_ASSIGN_OR_RETURN(step, CurrentStep(server));
  }
  BALLAST_ASSIGN_OR_RETURN(const auto client, GetQueryClient(server));
  BALLAST_ASSIGN_OR_RETURN(const v1::GetMixtureResponse mixture,
                           client->GetMixture(step, split));
  std::cout << (options.json ? MixtureJson(mixture) + "\n"
                             : SplitWord(split) + MixtureTable(mixture));
  return Flush(std::cout);
}

}  // namespace

std::string MixtureJson(const v1::GetMixtureResponse& mixture) {
  Json sources = Json::array();
  for (const auto& source : mixture.sources()) {
    sources.push_back({{"name", source.name()},
                       {"size", source.size()},
                       {"samples", source.samples()},
                       {"skipped", source.skipped()},
                       {"epochs", GetEpochs(source)},
                       {"share", GetShare(source, mixture)},
                       {"wanted_share", source.wanted_share()},
                       {"weight", source.weight()}});
  }
  return Json({{"step", mixture.step()},
               {"samples", mixture.samples()},
               {"sources", std::move(sources)}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string MixtureTable(const v1::GetMixtureResponse& mixture) {
  Table table({{"source", Table::kLeft},
               {"size"},
               {"samples"},
               {"left out"},
               {"epochs"},
               {"share"},
               {"wanted"},
               {"weight now"}});
  for (const auto& source : mixture.sources()) {
    table.AddRow({source.name(), absl::StrCat(source.size()),
                  absl::StrCat(source.samples()),
                  absl::StrCat(source.skipped()),
                  absl::StrFormat("%.3f", GetEpochs(source)),
                  absl::StrFormat("%.4f", GetShare(source, mixture)),
                  absl::StrFormat("%.4f", source.wanted_share()),
                  absl::StrFormat("%.4f", source.weight())});
  }
  return absl::StrCat("before step ", mixture.step(), ": ", mixture.samples(),
                      " samples\n", table.ToString());
}

void AddMixture(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      line->program(), "mixture",
      "Shows what the steps before a step drew from each source: samples, "
      "epochs,\nand the share against the weights. Without --step: up to the "
      "step that\ntraining is at.",
      kExamples, [server, options] { return Print(*server, *options); });
  options->has_step = command->AddWholeNumber(
      "--step", &options->step, "the first step that does not count");
  command->AddText("--split", &options->split, "whose order")
      .OneOf({"train", "valid", "test"})
      .ShowDefault();
  command->AddFlag("--json", &options->json, "one JSON object");
}

}  // namespace ballast
