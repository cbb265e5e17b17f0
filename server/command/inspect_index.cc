#include "server/command/commands.h"

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/image/engine_jpeg.h"
#include "proto/schedule/module.h"
#include "server/config/config_loader.h"
#include "server/config/config_validate.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "server/sample/source_index.h"
#include "server/schedule/balance.h"
#include "server/schedule/placement_figures.h"
#include "server/settings/key_report.h"

namespace ballast {

namespace {

using Json = nlohmann::ordered_json;

Json GetJson(const SourceMarks& source) {
  const ImageMarkCounts& marks = source.marks;
  Json refusals = Json::object();
  for (size_t i = 0; i < marks.refusals.size(); ++i) {
    if (marks.refusals[i] == 0) continue;
    refusals[i == 0 ? "not judged"
                    : std::string(EngineRefusalText(
                          static_cast<EngineRefusal>(i)))] = marks.refusals[i];
  }
  const uint64_t unchecked = marks.with(ImageCheckResult::kUnchecked);
  return {{"source", source.source},
          {"samples", source.samples},
          {"images", marks.images},
          {"marked", marks.marked()},
          {"checked", marks.marked() - unchecked},
          {"clean", marks.with(ImageCheckResult::kClean)},
          {"unsound", marks.with(ImageCheckResult::kUnsound)},
          {"changed", marks.with(ImageCheckResult::kChanged)},
          {"refusals", refusals}};
}

absl::Status InspectIndex(const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config, LoadConfig(path));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceMarks> sources,
                           CountMarks(config));
  for (const SourceMarks& source : sources) {
    std::cout << GetJson(source).dump() << "\n";
  }
  return Flush(std::cout);
}

}  // namespace

void AddInspectIndex(CommandLine* line, Command* inspect) {
  auto config = std::make_shared<std::string>();
  Command* command = line->AddCommand(
      inspect, "index",
      R"(Prints how many images of each source JPEG engines may decode.
One JSON object a source that has files, with the keys: source, samples, images,
marked (those that their headers allow), checked (of these), clean, unsound,
changed (since they were indexed), refusals {reason: images}: why the others are
left to the server.)",
      "  ballast-server inspect index --config ballast.yaml",
      [config] { return InspectIndex(*config); });
  command->AddText("--config", config.get(), "configuration file")
      .Required()
      .TypeName("FILE");
}

void AddInspectFingerprint(CommandLine* line, Command* inspect) {
  auto path = std::make_shared<std::string>();
  Command* command = line->AddCommand(
      inspect, "fingerprint",
      R"(Prints the fingerprint of a configuration and its indexes, which servers and
ranks of one job share. Needs the indexes, and no server. One JSON object with
the keys: fingerprint, data_fingerprint (what a checkpoint must match), entries
{key: value}. `ballastctl health --config` compares it with a server's.)",
      "  ballast-server inspect fingerprint --config ballast.yaml",
      [path]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config, LoadConfig(*path));
        BALLAST_ASSIGN_OR_RETURN(const OpenedJob job, OpenJob(config));
        const v1::Fingerprint& found = job.scheduler->fingerprint();
        Json entries = Json::object();
        for (const v1::Fingerprint::Entry& entry : found.entries()) {
          entries[entry.key()] = entry.value();
        }
        std::cout << Json({{"fingerprint", found.hash()},
                           {"data_fingerprint", found.data_hash()},
                           {"entries", std::move(entries)}})
                         .dump(-1, ' ', false, Json::error_handler_t::replace)
                  << "\n";
        return Flush(std::cout);
      });
  command->AddText("--config", path.get(), "configuration file")
      .Required()
      .TypeName("FILE");
}

namespace {

struct InspectBalanceOptions {
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

absl::StatusOr<nlohmann::ordered_json> Balance(
    const nlohmann::json& object, const InspectBalanceOptions& options) {
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
  auto options = std::make_shared<InspectBalanceOptions>();
  Command* command = line->AddCommand(
      inspect, "balance",
      R"(Partitions costs into groups of even load, as the schedule does.
Reads lines {"costs": [number, …]} from standard input and prints for each
{"groups": [[index, …], …], "load": […], "lower_bound": x}.)",
      R"(  echo '{"costs": [4, 3, 1, 2]}' |
    ballast-server inspect balance --groups 2 --algorithm lpt)",
      [options] {
        return TransformJsonLines(
            std::cin, std::cout,
            [&](const nlohmann::json& object, const std::string&) {
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

namespace {

using Json = nlohmann::ordered_json;

struct InspectPlacementOptions {
  std::string config;
  uint64_t step = 0;
  uint64_t steps = 8;
  uint64_t width = 0;
  bool json = false;
};

// One way to place samples, and its settings.
struct Choice {
  const char* name;
  v1::Balance::Objective objective;
  v1::Balance::Placement placement;
};
constexpr Choice kChoices[] = {
    {"sum", v1::Balance::OBJECTIVE_SUM, v1::Balance::PLACEMENT_PAIRED},
    {"phases", v1::Balance::OBJECTIVE_PHASES, v1::Balance::PLACEMENT_PAIRED},
    {"split", v1::Balance::OBJECTIVE_SUM, v1::Balance::PLACEMENT_SPLIT},
};

absl::StatusOr<PlacementFigures> GetFigures(
    LoadedConfig config, const Choice& choice,
    const InspectPlacementOptions& options) {
  v1::Balance& balance = *config.config.mutable_balance();
  balance.set_objective(choice.objective);
  balance.set_placement(choice.placement);
  // The file was checked with its own settings.
  KeyReport report;
  ValidatePacking(config.config, &report);
  ValidatePlacement(config.config, &report);
  BALLAST_RETURN_IF_ERROR(report.ToStatus(options.config));
  BALLAST_ASSIGN_OR_RETURN(const OpenedJob job, OpenJob(config));
  const uint32_t merge = job.config.model().merge();
  PlacementFigures figures;
  for (uint64_t i = 0; i < options.steps; ++i) {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                             job.scheduler->Schedule(options.step + i));
    AddStep(schedule, merge * merge, &figures);
  }
  return figures;
}

// Bytes of bfloat16 embeddings that move forward in a step; as many gradients
// move back.
uint64_t BytesAStep(const PlacementFigures& figures, uint64_t width) {
  return (figures.tokens_within_servers + figures.tokens_between_servers) *
         width * 2 / figures.steps;
}

Json ToJson(const PlacementFigures& figures,
            const InspectPlacementOptions& options) {
  const auto steps = static_cast<double>(figures.steps);
  Json spreads = Json::object();
  for (const ModuleKind& kind : ModuleKinds()) {
    spreads[std::string(kind.name)] = figures.spread(kind.module);
  }
  Json json = {
      {"time",
       {{"wait_a_micro_batch", figures.time_together / steps},
        {"wait_a_module", figures.time_by_module / steps},
        {"least", figures.mean_time / steps}}},
      {"max_over_mean", std::move(spreads)},
      {"image_tokens", figures.image_tokens / steps},
      {"embeddings_moved",
       {{"tokens_within_servers", figures.tokens_within_servers / steps},
        {"tokens_between_servers", figures.tokens_between_servers / steps}}}};
  if (options.width > 0) {
    json["embeddings_moved"]["bytes"] = BytesAStep(figures, options.width);
  }
  return json;
}

void AddRow(const char* name, const PlacementFigures& figures,
            const InspectPlacementOptions& options, Table* table) {
  const auto steps = static_cast<double>(figures.steps);
  const bool split = std::string(name) == "split";
  const auto tokens = [&](uint64_t count) {
    return absl::StrFormat("%.0f", count / steps);
  };
  std::vector<std::string> row = {name};
  for (const ModuleKind& kind : ModuleKinds()) {
    row.push_back(absl::StrFormat("%.3f", figures.spread(kind.module)));
  }
  row.push_back(split ? "-"
                      : absl::StrFormat("%.6g", figures.time_together / steps));
  row.push_back(absl::StrFormat("%.6g", figures.time_by_module / steps));
  row.push_back(tokens(figures.tokens_within_servers));
  row.push_back(tokens(figures.tokens_between_servers));
  row.push_back(options.width > 0
                    ? absl::StrCat(BytesAStep(figures, options.width))
                    : "-");
  table->AddRow(std::move(row));
}

absl::Status InspectPlacement(const InspectPlacementOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  std::vector<Table::Column> columns = {{"balance", Table::kLeft}};
  for (const ModuleKind& kind : ModuleKinds()) {
    columns.push_back({std::string(kind.name)});
  }
  for (const char* name : {"wait a micro-batch", "wait a module",
                           "moved in server", "between", "bytes"}) {
    columns.push_back({name});
  }
  Table table(std::move(columns));
  Json json = Json::object();
  std::string refused;
  double least = 0;
  for (const Choice& choice : kChoices) {
    const absl::StatusOr<PlacementFigures> figures =
        GetFigures(config, choice, options);
    if (figures.ok()) {
      least = figures->mean_time / static_cast<double>(figures->steps);
      json[choice.name] = ToJson(*figures, options);
      AddRow(choice.name, *figures, options, &table);
      continue;
    }
    // Paired by `sum` suits every configuration, so that error is another one.
    if (!absl::IsInvalidArgument(figures.status()) || json.empty()) {
      return figures.status();
    }
    json[choice.name] = {{"refused", figures.status().message()}};
    absl::StrAppend(&refused, choice.name, ": ", figures.status().message(),
                    "\n");
  }
  if (options.json) {
    std::cout << json.dump() << "\n";
  } else {
    std::cout << table.ToString()
              << absl::StrFormat("least time: %.6g a step\n", least) << refused;
  }
  return Flush(std::cout);
}

}  // namespace

void AddInspectPlacement(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<InspectPlacementOptions>();
  Command* command = line->AddCommand(
      inspect, "placement",
      R"(Compares objectives and placements by the times that balance.cost predicts.
Plans the same steps with balance.objective `sum` and `phases` and with
balance.placement `split`, and prints for each: the largest load over the mean
of each module, the time of a step if ranks wait for each other once a
micro-batch or after each module, and the image tokens whose embeddings move in
a step. A choice that the configuration rules out is named with the reason.
Needs the index, but no server.)",
      "  ballast-server inspect placement --config ballast.yaml --steps 20\n"
      "  ballast-server inspect placement --config ballast.yaml --width 3584 "
      "--json",
      [options] { return InspectPlacement(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command->AddWholeNumber("--step", &options->step, "first step").ShowDefault();
  command->AddWholeNumber("--steps", &options->steps, "number of steps", 1)
      .ShowDefault();
  command->AddWholeNumber(
      "--width", &options->width,
      "numbers of an embedding (the language model's hidden_size): also "
      "prints the bytes that move forward in bfloat16",
      1, uint64_t{1} << 20);
  command->AddFlag("--json", &options->json, "print one JSON object");
}

namespace {

struct InspectLengthsOptions {
  std::string mode;
  LognormalLengths lengths;
  uint64_t count = 0;
};

}  // namespace

absl::Status InspectLengths(const LognormalLengths& lengths, uint64_t count,
                            std::ostream& out) {
  const absl::Status checked = CheckLognormalLengths(lengths);
  if (!checked.ok()) {
    // The message begins with the option's name.
    return absl::Status(checked.code(), absl::StrCat("--", checked.message()));
  }
  MockLengths drawn(lengths);
  // Writes one length at a time: `count` lengths may exceed memory.
  out << '[';
  for (uint64_t i = 0; i < count && out; ++i) {
    if (i > 0) out << ',';
    out << drawn.Next();
  }
  out << "]\n";
  return Flush(out);
}

void AddInspectLengths(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<InspectLengthsOptions>();
  Command* command = line->AddCommand(
      inspect, "lengths",
      R"(Prints the lengths that a mock source draws, in tokens.
One JSON array, in the order of the source's samples; equal to the lengths of
Megatron-LM's mock datasets for the same options.)",
      R"(  ballast-server inspect lengths --mode lognormal --min 1024 --max 8192 \
      --mean 4096 --sigma 1.1 --count 8)",
      [options] {
        return InspectLengths(options->lengths, options->count, std::cout);
      });
  command->AddText("--mode", &options->mode, "distribution of the lengths")
      .OneOf({"lognormal"})
      .Required();
  command
      ->AddWholeNumber("--min", &options->lengths.min,
                       "smallest length, in tokens")
      .Required();
  command
      ->AddWholeNumber("--max", &options->lengths.max,
                       "largest length, in tokens")
      .Required();
  command
      ->AddReal("--mean", &options->lengths.mean,
                "mean of the distribution, before lengths are clipped to "
                "--min and --max")
      .Required()
      .TypeName("TOKENS");
  command
      ->AddReal("--sigma", &options->lengths.sigma,
                "standard deviation of the logarithm")
      .Required()
      .TypeName("X");
  command->AddWholeNumber("--count", &options->count, "number of lengths")
      .Required();
}

}  // namespace ballast
