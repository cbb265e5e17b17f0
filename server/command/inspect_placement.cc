#include "server/command/inspect_placement.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/schedule/module.h"
#include "server/config/config_loader.h"
#include "server/config/config_validate.h"
#include "server/config/key_report.h"
#include "server/job/job_setup.h"
#include "server/schedule/placement_figures.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
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

absl::StatusOr<PlacementFigures> FiguresOf(LoadedConfig config,
                                           const Choice& choice,
                                           const Options& options) {
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

Json ToJson(const PlacementFigures& figures, const Options& options) {
  const auto steps = static_cast<double>(figures.steps);
  Json spreads = Json::object();
  for (const ModuleKind& kind : kModuleKinds) {
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
            const Options& options, Table* table) {
  const auto steps = static_cast<double>(figures.steps);
  const bool split = std::string(name) == "split";
  const auto tokens = [&](uint64_t count) {
    return absl::StrFormat("%.0f", count / steps);
  };
  std::vector<std::string> row = {name};
  for (const ModuleKind& kind : kModuleKinds) {
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

absl::Status InspectPlacement(const Options& options) {
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  std::vector<Table::Column> columns = {{"balance", Table::kLeft}};
  for (const ModuleKind& kind : kModuleKinds) {
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
        FiguresOf(config, choice, options);
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
  std::cout.flush();
  if (!std::cout) {
    return absl::UnavailableError("cannot write to standard output");
  }
  return absl::OkStatus();
}

}  // namespace

void AddInspectPlacement(CommandLine* line, Command* inspect) {
  auto options = std::make_shared<Options>();
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

}  // namespace ballast
