#include "server/command/commands.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/config/config_loader.h"
#include "server/job/job_setup.h"
#include "server/plan/pack_plan.h"

namespace ballast {
namespace {

struct Options {
  std::string config;
  std::string out;
  uint64_t tokens = 0;
  uint32_t packs = 0;
  uint32_t window = PackOptions().window;
};

absl::Status Pack(const Options& options) {
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
      WritePacks(job.config, *job.scheduler, pack, options.out));
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
  auto options = std::make_shared<Options>();
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
