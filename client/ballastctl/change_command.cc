#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ballastctl/commands.h"
#include "client/ballastctl/query_client.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kChangeExamples[] =
    "  ballastctl --server a:7070 change --config b.yaml "
    "--from-step 9000 --dry-run\n"
    "  ballastctl --server a:7070 change --config b.yaml "
    "--from-step 9000\n"
    "\n"
    "JSON keys: number (0: a dry run), first_step, fingerprint, earliest_step\n"
    "(from which the job can change now), differences [\"KEY: BEFORE -> "
    "AFTER\"],\n"
    "servers [{address, earliest_step, notes [TEXT]}].";

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

struct ChangeOptions {
  std::string config;
  uint64_t first_step = 0;
  bool dry_run = false;
  bool json = false;
};

uint64_t EarliestStep(const v1::ChangeResponse& change) {
  uint64_t earliest = 0;
  for (const auto& server : change.servers()) {
    earliest = std::max<uint64_t>(earliest, server.earliest_step());
  }
  return earliest;
}

absl::Status Run(const ServerOption& option, const ChangeOptions& options) {
  v1::ChangeRequest request;
  BALLAST_ASSIGN_OR_RETURN(*request.mutable_config(),
                           ReadSmallFile(options.config, kMaxConfigBytes));
  request.set_first_step(options.first_step);
  request.set_dry_run(options.dry_run);
  BALLAST_ASSIGN_OR_RETURN(auto client, GetQueryClient(option));
  BALLAST_ASSIGN_OR_RETURN(
      const v1::GetRevisionsResponse known,
      client->GetRevisions(std::numeric_limits<uint64_t>::max()));
  if (known.server() != known.decider()) {
    ServerOption decider = option;
    decider.addresses = known.decider();
    BALLAST_ASSIGN_OR_RETURN(client, GetQueryClient(decider));
  }
  absl::StatusOr<v1::ChangeResponse> change = client->Change(request);
  if (!change.ok() && !options.dry_run &&
      (absl::IsUnavailable(change.status()) ||
       absl::IsDeadlineExceeded(change.status()))) {
    return Annotate(
        change.status(),
        "whether the change holds is not known; `ballastctl status` shows it");
  }
  BALLAST_RETURN_IF_ERROR(Annotate(change.status(), "nothing has changed"));
  std::cout << (options.json ? ChangeJson(*change) + "\n"
                             : ChangeText(*change));
  return Flush(std::cout);
}

}  // namespace

std::string ChangeJson(const v1::ChangeResponse& change) {
  Json servers = Json::array();
  for (const auto& server : change.servers()) {
    Json notes = Json::array();
    for (const std::string& note : server.notes()) notes.push_back(note);
    servers.push_back({{"address", server.address()},
                       {"earliest_step", server.earliest_step()},
                       {"notes", std::move(notes)}});
  }
  Json differences = Json::array();
  for (const std::string& difference : change.differences()) {
    differences.push_back(difference);
  }
  return Json({{"number", change.revision().number()},
               {"first_step", change.revision().first_step()},
               {"fingerprint", change.revision().fingerprint()},
               {"earliest_step", EarliestStep(change)},
               {"differences", std::move(differences)},
               {"servers", std::move(servers)}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ChangeText(const v1::ChangeResponse& change) {
  const v1::ConfigRevision& revision = change.revision();
  const bool dry = revision.number() == 0;
  std::string text =
      dry ? absl::StrCat("From step ", revision.first_step(),
                         " on this would change:\n")
          : absl::StrCat("Change ", revision.number(), " holds from step ",
                         revision.first_step(), " on:\n");
  for (const std::string& difference : change.differences()) {
    absl::StrAppend(&text, "  ", difference, "\n");
  }
  for (const auto& server : change.servers()) {
    for (const std::string& note : server.notes()) {
      absl::StrAppend(&text, "server ", server.address(), ": ", note, "\n");
    }
  }
  absl::StrAppend(&text, change.servers_size(),
                  change.servers_size() == 1 ? " server" : " servers",
                  dry ? " can serve it. Nothing has changed; the earliest step "
                        "is now "
                      : " agreed. Fingerprint ");
  absl::StrAppend(
      &text, dry ? absl::StrCat(EarliestStep(change)) : revision.fingerprint(),
      ".\n");
  return text;
}

void AddChange(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  auto options = std::make_shared<ChangeOptions>();
  Command* command = line->AddCommand(
      line->program(), "change",
      "Offers a configuration to all servers of a running job. When all have\n"
      "agreed, the steps from --from-step on follow it; no rank restarts, and "
      "no\n"
      "step before moves. What may change: weights, sources, sizes of steps,\n"
      "packing, skips, costs, limits on pixels, recipes (docs/changes.md).\n"
      "Servers need serve.revisions. Relative paths in the file start from "
      "the\n"
      "directory of each server's own file.",
      kChangeExamples, [server, options] { return Run(*server, *options); });
  command->AddText("--config", &options->config, "the whole new configuration")
      .Required()
      .TypeName("FILE");
  command
      ->AddWholeNumber("--from-step", &options->first_step,
                       "the first step that follows it")
      .Required();
  command->AddFlag("--dry-run", &options->dry_run,
                   "ask all servers, and change nothing");
  command->AddFlag("--json", &options->json, "one JSON object");
}

namespace {

constexpr char kMixtureExamples[] =
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

struct MixtureOptions {
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

absl::Status PrintChange(const ServerOption& server,
                         const MixtureOptions& options) {
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
  auto options = std::make_shared<MixtureOptions>();
  Command* command = line->AddCommand(
      line->program(), "mixture",
      "Shows what the steps before a step drew from each source: samples, "
      "epochs,\nand the share against the weights. Without --step: up to the "
      "step that\ntraining is at.",
      kMixtureExamples,
      [server, options] { return PrintChange(*server, *options); });
  options->has_step = command->AddWholeNumber(
      "--step", &options->step, "the first step that does not count");
  command->AddText("--split", &options->split, "whose order")
      .OneOf({"train", "valid", "test"})
      .ShowDefault();
  command->AddFlag("--json", &options->json, "one JSON object");
}

}  // namespace ballast
