#include "server/command/make_corpus.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/corpus/draw/dataset.h"
#include "server/corpus/draw/draw_sample.h"

namespace ballast {
namespace {

struct Options {
  DatasetOptions dataset;
  std::string preset = "mixed";
};

absl::Status MakeCorpus(Options options) {
  BALLAST_ASSIGN_OR_RETURN(options.dataset.preset, ParsePreset(options.preset));
  BALLAST_ASSIGN_OR_RETURN(const DatasetReport report,
                           WriteDataset(options.dataset));
  const std::string& directory = options.dataset.directory;
  std::cout << absl::StrFormat(
      "%s: %d samples, %d images, %.1f MB in %d shards\n", directory,
      options.dataset.samples, report.images, report.bytes * 1e-6,
      report.shards);
  if (report.wrote_config) {
    std::cout << "configuration: " << directory << "/ballast.yaml\n";
  } else {
    std::cout << directory << "/ballast.yaml was there and stays as it is\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddMakeCorpus(CommandLine* line) {
  auto options = std::make_shared<Options>();
  CLI::App* command = line->AddCommand(
      line->app(), "make-corpus",
      "Draws a dataset of documents and scenes as WebDataset tars, with a\n"
      "configuration (ballast.yaml) to serve it. The same bytes for the same\n"
      "samples, seed and preset.",
      "  ballast-server make-corpus --out data --samples 512\n"
      "  ballast-server make-corpus --out data --samples 64 --preset receipts "
      "--seed 7",
      [options] { return MakeCorpus(*options); });
  command
      ->add_option("--out", options->dataset.directory,
                   "directory, made if need be")
      ->required();
  command->add_option("--samples", options->dataset.samples, "at least 1")
      ->required()
      ->check(CLI::Range(1, 256000000));
  command
      ->add_option("--seed", options->dataset.seed, "default 1")
      // CLI11 would read -1 as 2^64 - 1.
      ->check([](const std::string& value) {
        return value[0] == '-' ? "wanted a number of at least 0"
                               : std::string();
      });
  command->add_option("--preset", options->preset,
                      "`receipts`, `mixed` (default: also pages, tables, "
                      "scenes, several images a sample) or `text`");
}

}  // namespace ballast
