#include "client/ballastctl/commands.h"

#include <algorithm>
#include <iostream>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/ballastctl/quantities.h"
#include "common/message_fields.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/metrics_service.pb.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

// Limit of steps per call; more steps take several calls.
constexpr uint64_t kStepsACall = 16;

constexpr char kBalanceExamples[] =
    "  ballastctl --server 127.0.0.1:7070 balance\n"
    "  ballastctl --server 127.0.0.1:7070 balance --step 10 --steps 5 --json\n"
    "  ballastctl --server 127.0.0.1:7070 balance --watch --ranks\n"
    "\n"
    "`spread` is the heaviest rank's load over the mean: 1 is even.\n"
    "JSON keys: step, micro_batches, spread {before, after} (of all modules\n"
    "together, where ranks have all of them), modules {vision|language: "
    "{spread\n"
    "{before, after}, samples, bytes, within_servers {samples, bytes} "
    "(moved),\n"
    "between_servers {samples, bytes}; with --ranks, by rank: load {before,\n"
    "after}, samples_out, samples_in, bytes_out, bytes_in}}.";

std::string GetName(v1::Module module) {
  return std::string(ModuleName(module));
}

std::string MovedText(const v1::Moved& moved) {
  if (moved.samples() == 0) return "none";
  return absl::StrCat(moved.samples(), ", ", BytesText(moved.bytes()));
}

// The columns that a server sends may have any length.
template <typename Column>
auto At(const Column& column, int rank) {
  return rank < column.size() ? column.Get(rank) : 0;
}

absl::Status Print(const v1::StepBalance& balance, bool json,
                   std::ostream* out) {
  *out << (json ? BalanceJson(balance) + "\n" : BalanceTable(balance));
  return Flush(*out);
}

absl::Status Watch(QueryClient* client, const BalanceOptions& options,
                   std::ostream* out) {
  v1::WatchBalanceRequest request;
  if (options.step.has_value()) request.set_from_step(*options.step);
  request.set_steps(options.steps);
  request.set_ranks(options.ranks);
  absl::Status printed;
  BALLAST_RETURN_IF_ERROR(
      client->WatchBalance(request, [&](const v1::StepBalance& balance) {
        printed = Print(balance, options.json, out);
        return printed.ok();
      }));
  return printed;
}

}  // namespace

std::string BalanceJson(const v1::StepBalance& balance) {
  Json modules = Json::object();
  for (const v1::ModuleBalance& module : balance.modules()) {
    Json& json = modules[GetName(module.module())];
    json["spread"] = {{"before", module.spread_before()},
                      {"after", module.spread_after()}};
    json["samples"] = module.samples();
    json["bytes"] = module.bytes();
    json["within_servers"] = ToJson(module.within_servers());
    json["between_servers"] = ToJson(module.between_servers());
    if (module.load_after().empty()) continue;
    json["load"] = {{"before", module.load_before()},
                    {"after", module.load_after()}};
    json["samples_out"] = module.samples_out();
    json["samples_in"] = module.samples_in();
    json["bytes_out"] = module.bytes_out();
    json["bytes_in"] = module.bytes_in();
  }
  Json json = {{"step", balance.step()},
               {"micro_batches", balance.micro_batches()},
               {"modules", std::move(modules)}};
  if (balance.spread_after() > 0) {
    json["spread"] = {{"before", balance.spread_before()},
                      {"after", balance.spread_after()}};
  }
  return json.dump();
}

std::string BalanceTable(const v1::StepBalance& balance) {
  Table sums({{"module", Table::kLeft},
              {"heaviest/mean read"},
              {"trained"},
              {"samples, bytes"},
              {"moved within"},
              {"between"}});
  for (const v1::ModuleBalance& module : balance.modules()) {
    v1::Moved all;
    all.set_samples(module.samples());
    all.set_bytes(module.bytes());
    sums.AddRow({GetName(module.module()), RatioText(module.spread_before()),
                 RatioText(module.spread_after()), MovedText(all),
                 MovedText(module.within_servers()),
                 MovedText(module.between_servers())});
  }
  if (balance.spread_after() > 0) {
    sums.AddRow({"all modules", RatioText(balance.spread_before()),
                 RatioText(balance.spread_after()), "", "", ""});
  }
  std::string text =
      absl::StrCat("step ", balance.step(), ", ", balance.micro_batches(),
                   " micro-batches\n", sums.ToString());
  for (const v1::ModuleBalance& module : balance.modules()) {
    if (module.spread_before() != 0) continue;
    absl::StrAppend(&text, GetName(module.module()),
                    ": no load in this step (balance.cost)\n");
  }
  for (const v1::ModuleBalance& module : balance.modules()) {
    if (module.load_after().empty()) continue;
    Table ranks({{GetName(module.module())},
                 {"load before"},
                 {"after"},
                 {"samples out"},
                 {"in"},
                 {"bytes out"},
                 {"in"}});
    for (int r = 0; r < module.load_after_size(); ++r) {
      ranks.AddRow({absl::StrCat(r), CountText(At(module.load_before(), r)),
                    CountText(At(module.load_after(), r)),
                    absl::StrCat(At(module.samples_out(), r)),
                    absl::StrCat(At(module.samples_in(), r)),
                    BytesText(At(module.bytes_out(), r)),
                    BytesText(At(module.bytes_in(), r))});
    }
    absl::StrAppend(&text, "\n", ranks.ToString());
  }
  return text;
}

absl::Status PrintBalance(QueryClient* client, const BalanceOptions& options,
                          std::ostream* out) {
  if (options.watch) return Watch(client, options, out);
  uint64_t next = 0;
  if (options.step.has_value()) {
    next = *options.step;
  } else {
    BALLAST_ASSIGN_OR_RETURN(const v1::GetStatusResponse status,
                             client->GetStatus());
    next = status.current_step();
  }
  for (uint64_t left = options.steps; left > 0;) {
    v1::GetBalanceRequest request;
    request.set_from_step(next);
    request.set_steps(std::min(left, kStepsACall));
    request.set_ranks(options.ranks);
    BALLAST_ASSIGN_OR_RETURN(const v1::GetBalanceResponse answer,
                             client->GetBalance(request));
    for (const v1::StepBalance& balance : answer.steps()) {
      BALLAST_RETURN_IF_ERROR(Print(balance, options.json, out));
    }
    next += request.steps();
    left -= request.steps();
  }
  return absl::OkStatus();
}

void AddBalance(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  struct Given {
    BalanceOptions options;
    uint64_t step = 0;
    uint64_t steps = 0;
    std::optional<Option> has_step;
    std::optional<Option> has_steps;
  };
  auto given = std::make_shared<Given>();
  Command* command = line->AddCommand(
      line->program(), "balance",
      "Shows how evenly the ranks share the load of steps, as read and as\n"
      "trained, and what is moved for it within and between servers. Without\n"
      "--step: the step that training is at.",
      kBalanceExamples, [server, given]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto client, GetQueryClient(*server));
        BalanceOptions options = given->options;
        if (given->has_step->given()) options.step = given->step;
        options.steps = given->has_steps->given() ? given->steps
                        : options.watch           ? 0
                                                  : 1;
        return PrintBalance(client.get(), options, &std::cout);
      });
  given->has_step =
      command->AddWholeNumber("--step", &given->step, "first step");
  given->has_steps = command->AddWholeNumber(
      "--steps", &given->steps,
      "number of steps (default 1; with --watch: without end)");
  command->AddFlag("--ranks", &given->options.ranks, "also by rank");
  command->AddFlag("--watch", &given->options.watch,
                   "follow training: each step as a rank gets its first block");
  command->AddFlag("--json", &given->options.json, "one JSON object a step");
}

}  // namespace ballast
