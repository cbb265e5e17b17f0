#include <nlohmann/json.hpp>

#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/job.pb.h"
#include "proto/schedule/schedule_table.h"
#include "proto/schedule/split.h"
#include "server/command/commands.h"
#include "server/config/config_loader.h"
#include "server/data/index/bad_records.h"
#include "server/job/job_setup.h"
#include "server/schedule/plan_export.h"
#include "server/schedule/step_plan.h"

namespace ballast {
namespace {

struct PlanOptions {
  std::string config;
  uint64_t step = 0;
  std::string steps;
  std::string split = "train";
  std::string export_to;
  std::vector<std::string> diff;
  bool changes = false;
  bool json = false;
};

struct StepsAsked {
  uint64_t first = 0;
  uint64_t last = 0;
};

// Reads --step and --steps, which is a number of steps from --step on or the
// steps A..B.
absl::StatusOr<StepsAsked> GetSteps(const PlanOptions& options) {
  StepsAsked asked = {options.step, options.step};
  if (options.steps.empty()) return asked;
  const std::vector<absl::string_view> ends =
      absl::StrSplit(options.steps, absl::MaxSplits("..", 1));
  uint64_t count = 0;
  if (ends.size() == 2 && absl::SimpleAtoi(ends[0], &asked.first) &&
      absl::SimpleAtoi(ends[1], &asked.last) && asked.first <= asked.last &&
      options.step == 0) {
    return asked;
  }
  if (ends.size() == 1 && absl::SimpleAtoi(ends[0], &count) && count > 0 &&
      count - 1 <= std::numeric_limits<uint64_t>::max() - options.step) {
    asked.last = options.step + (count - 1);
    return asked;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--steps is ", options.steps,
      "; wanted a number of steps from 1, or the first and the last step as "
      "100..199, without --step"));
}

absl::Status Flush() {
  std::cout.flush();
  if (std::cout) return absl::OkStatus();
  return absl::UnavailableError("cannot write to standard output");
}

using Json = nlohmann::ordered_json;

// Prints from which step and in what two configurations differ.
absl::Status Compare(const PlanOptions& options) {
  if (options.diff.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--diff has ", options.diff.size(), " files; wanted two, OLD NEW"));
  }
  v1::Fingerprint fingerprints[2];
  for (int i = 0; i < 2; ++i) {
    BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                             LoadConfig(options.diff[i]));
    const absl::StatusOr<OpenedJob> job = OpenJob(config);
    if (!job.ok()) return Annotate(job.status(), options.diff[i]);
    fingerprints[i] = job->scheduler->fingerprint();
  }
  const std::vector<PlanDifference> differences =
      ComparePlans(fingerprints[0], fingerprints[1]);
  const auto text = [](const std::optional<std::string>& value) {
    return value.value_or("absent");
  };
  if (options.json) {
    for (const PlanDifference& each : differences) {
      std::cout << Json({{"step", each.from_step},
                         {"of", each.is_data ? "data" : "layout"},
                         {"key", each.key},
                         {"old", text(each.old_value)},
                         {"new", text(each.new_value)}})
                       .dump()
                << "\n";
    }
    return Flush();
  }
  if (differences.empty()) {
    std::cout << "no difference: every step is the same\n";
    return Flush();
  }
  if (differences[0].is_data) {
    std::cout << "the data differ from step " << differences[0].from_step
              << " on\n";
  } else {
    std::cout << "the data of all steps are the same; who reads them and "
                 "trains on them differs\n";
  }
  Table table({{"from step"},
               {"of", Table::kLeft},
               {"key", Table::kLeft},
               {"old", Table::kLeft},
               {"new", Table::kLeft}});
  for (const PlanDifference& each : differences) {
    table.AddRow({absl::StrCat(each.from_step),
                  each.is_data ? "data" : "layout", each.key,
                  text(each.old_value), text(each.new_value)});
  }
  std::cout << table.ToString();
  return Flush();
}

absl::Status Plan(const PlanOptions& options) {
  if (!options.diff.empty()) return Compare(options);
  if (options.config.empty()) {
    return absl::InvalidArgumentError(
        "--config is missing; wanted a configuration file, or --diff OLD NEW");
  }
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  if (options.changes) {
    BALLAST_ASSIGN_OR_RETURN(const std::string changes,
                             DescribeChanges(config.config, options.json));
    std::cout << changes;
    return Flush();
  }
  BALLAST_ASSIGN_OR_RETURN(const StepsAsked steps, GetSteps(options));
  BALLAST_ASSIGN_OR_RETURN(const OpenedJob job, OpenJob(config));
  BALLAST_ASSIGN_OR_RETURN(const Scheduler* const scheduler,
                           job.scheduler->OfSplit(*ParseSplit(options.split)));
  if (!options.export_to.empty()) {
    if (scheduler != job.scheduler.get()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--split is ", options.split,
          " with --export; wanted train, whose steps order.plan gives"));
    }
    BALLAST_ASSIGN_OR_RETURN(
        const uint64_t rows,
        ExportPlan(job.config, *scheduler, job.source_pointers(), steps.first,
                   steps.last, options.export_to));
    std::cout << "wrote " << rows << " rows of steps " << steps.first << " to "
              << steps.last << " to " << options.export_to << "\n";
    return Flush();
  }
  for (uint64_t step = steps.first;; ++step) {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                             scheduler->Schedule(step));
    std::cout << (options.json ? ScheduleToJson(schedule) + "\n"
                               : ScheduleToTable(schedule));
    if (step == steps.last) break;
  }
  // Beside the schedules, which other programs read.
  std::cerr << "costs: " << config.costs << "\n";
  for (const v1::LeftOut& left_out : job.left_out) {
    std::cerr << "left out: source " << left_out.source() << ": "
              << DescribeLeftOut(left_out) << "\n";
  }
  return Flush();
}

}  // namespace

void AddPlan(CommandLine* line) {
  auto options = std::make_shared<PlanOptions>();
  Command* command = line->AddCommand(
      line->program(), "plan",
      R"(Prints the schedule of a step: who reads and who owns each sample, and the load
of each rank before and after balancing. Needs the index, but no server.
With --export: writes them to a plan file, which order.plan trains on.
With --diff: from which step on and in what two configurations differ; `data` is
what the steps train on, `layout` who reads and trains on it. JSON keys: step,
of, key, old, new.
With --changes: the steps of train at which the mixture or the batch size
changes or data are left out, without an index. JSON keys: step, position (its
first), samples (a step), left_out (samples before it), weights {source: x}.)",
      "  ballast-server plan --config ballast.yaml --step 0\n"
      "  ballast-server plan --config ballast.yaml --step 10 --steps 5 --json\n"
      "  ballast-server plan --config ballast.yaml --step 0 --split valid\n"
      "  ballast-server plan --config ballast.yaml --export plan.parquet "
      "--steps 0..99\n"
      "  ballast-server plan --config ballast.yaml --changes\n"
      "  ballast-server plan --diff ballast.yaml new.yaml",
      [options] { return Plan(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .TypeName("FILE");
  command->AddWholeNumber("--step", &options->step, "first step").ShowDefault();
  command
      ->AddText("--steps", &options->steps,
                "number of steps, by default 1, or the first and the last one "
                "as 100..199")
      .TypeName("N or A..B");
  command
      ->AddText("--export", &options->export_to,
                "write the steps to this plan file (Parquet)")
      .TypeName("FILE");
  command->AddText("--split", &options->split, "whose schedule")
      .OneOf({"train", "valid", "test"})
      .ShowDefault();
  command
      ->AddTexts("--diff", &options->diff,
                 "instead of --config: two configurations to compare")
      .TypeName("OLD NEW");
  command->AddFlag("--changes", &options->changes,
                   "the steps at which order and batch change, instead of "
                   "schedules");
  command->AddFlag("--json", &options->json, "print one JSON object a step");
}

namespace {

std::vector<double> WeightsAt(const v1::Config& config, const StepPlan& plan,
                              uint64_t position) {
  std::vector<double> weights;
  for (const uint32_t i : SourcesOfSplit(config, v1::SPLIT_TRAIN)) {
    weights.push_back(config.sources(i).weight());
  }
  for (const SampleOrder::Change& change : plan.mixtures) {
    if (change.first_position <= position) weights = change.weights;
  }
  return weights;
}

}  // namespace

absl::StatusOr<std::string> DescribeChanges(const v1::Config& config,
                                            bool json) {
  if (config.batch().tokens() > 0 || config.batch().packs() > 0 ||
      !config.order().plan().empty()) {
    return absl::InvalidArgumentError(
        "--changes: only the index, or the plan file, has the sizes of steps "
        "of batch.tokens, batch.packs and order.plan; wanted --step and "
        "--steps");
  }
  BALLAST_ASSIGN_OR_RETURN(const StepPlan plan,
                           PlanSteps(config, v1::SPLIT_TRAIN));
  v1::Job job;
  job.mutable_step_ranges()->Add(plan.steps.begin(), plan.steps.end());
  std::set<uint64_t> steps;
  for (const v1::StepRange& range : plan.steps)
    steps.insert(range.first_step());
  for (const SampleOrder::Change& change : plan.mixtures) {
    // Changes among data that are left out have no step.
    const auto step = StepOfPosition(job, change.first_position);
    if (step.has_value()) steps.insert(*step);
  }
  const std::vector<uint32_t> sources = SourcesOfSplit(config, v1::SPLIT_TRAIN);
  Table table({{"from step"},
               {"position"},
               {"samples a step"},
               {"left out before"},
               {"weights", Table::kLeft}});
  std::string lines;
  for (const uint64_t step : steps) {
    BALLAST_ASSIGN_OR_RETURN(const uint64_t position, FirstPosition(job, step));
    uint64_t left_out = 0;
    if (step > 0) {
      BALLAST_ASSIGN_OR_RETURN(const uint64_t before,
                               FirstPosition(job, step - 1));
      left_out = position - before - SamplesOfStep(job, step - 1);
    }
    const std::vector<double> weights = WeightsAt(config, plan, position);
    Json json_weights = Json::object();
    std::string text;
    for (size_t s = 0; s < sources.size(); ++s) {
      const std::string& name = config.sources(sources[s]).name();
      json_weights[name] = weights[s];
      absl::StrAppend(&text, s == 0 ? "" : ", ", name, " ", weights[s]);
    }
    const uint32_t samples = SamplesOfStep(job, step);
    table.AddRow({absl::StrCat(step), absl::StrCat(position),
                  absl::StrCat(samples), absl::StrCat(left_out), text});
    absl::StrAppend(&lines,
                    Json({{"step", step},
                          {"position", position},
                          {"samples", samples},
                          {"left_out", left_out},
                          {"weights", std::move(json_weights)}})
                        .dump(),
                    "\n");
  }
  return json ? lines : table.ToString();
}

namespace {

struct PackGiven {
  std::string config;
  std::string out;
  uint64_t tokens = 0;
  uint32_t packs = 0;
  uint32_t window = PackOptions().window;
};

absl::Status Pack(const PackGiven& options) {
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  BALLAST_ASSIGN_OR_RETURN(const OpenedJob job, OpenJob(config));
  PackOptions pack;
  pack.tokens = options.tokens;
  pack.window = options.window;
  pack.packs = options.packs > 0 ? options.packs : job.config.batch().packs();
  if (pack.packs == 0) {
    return absl::InvalidArgumentError(
        "--packs is missing, and batch.packs is not set; wanted the number of "
        "packs of a step");
  }
  const v1::Job& steps = job.scheduler->job();
  const uint64_t end =
      steps.end_step() != 0 ? steps.end_step() : steps.steps_per_epoch();
  if (end == 0) {
    return absl::InvalidArgumentError(
        "the sources have fewer samples than a step; wanted a smaller "
        "batch.global");
  }
  pack.last_step = end - 1;
  BALLAST_ASSIGN_OR_RETURN(
      const PackFigures figures,
      WritePacks(job.config, *job.scheduler, job.source_pointers(), pack,
                 options.out));
  std::cout << absl::StrFormat(
      "packed %d samples into %d packs of %d tokens, %d steps: fill %.2f %%\n",
      figures.samples, figures.packs, pack.tokens, figures.steps,
      100 * figures.fill(pack.tokens));
  if (figures.left_out > 0) {
    std::cout << "left out " << figures.left_out
              << " samples, whose packs are less than a step\n";
  }
  std::cout.flush();
  if (std::cout) return absl::OkStatus();
  return absl::UnavailableError("cannot write to standard output");
}

}  // namespace

void AddPack(CommandLine* line) {
  auto options = std::make_shared<PackGiven>();
  Command* command = line->AddCommand(
      line->program(), "pack",
      R"(Packs the samples of an epoch of train, or of order.epochs, into a plan file,
which order.plan trains on with packing.mode: scheduled. Takes --window samples
at a time in the order of training, and packs them first-fit decreasing. Nothing
is copied: the file names samples. Prints the fill: the share of the packs'
tokens that are not padding.)",
      "  ballast-server pack --config a.yaml --tokens 8192 --packs 64 "
      "--out p.parquet",
      [options] { return Pack(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command->AddWholeNumber("--tokens", &options->tokens, "tokens of a pack", 1)
      .Required();
  command->AddWholeNumber("--packs", &options->packs,
                          "packs of a step, by default batch.packs", 1);
  command
      ->AddWholeNumber("--window", &options->window,
                       "samples that are packed together", 1)
      .ShowDefault();
  command->AddText("--out", &options->out, "plan file to write (Parquet)")
      .Required()
      .TypeName("FILE");
}

}  // namespace ballast
