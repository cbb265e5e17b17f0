#include "server/command/make_corpus.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/progress_bar.h"
#include "common/status_macros.h"
#include "server/command/draw/dataset.h"
#include "server/command/draw/draw_sample.h"

namespace ballast {
namespace {

struct Options {
  DatasetOptions dataset;
  std::string preset = "mixed";
  std::string format = "webdataset";
};

DatasetFormat FormatOf(const std::string& name) {
  if (name == "parquet") return DatasetFormat::kParquet;
  if (name == "energon") return DatasetFormat::kEnergon;
  if (name == "jsonl") return DatasetFormat::kJsonl;
  return DatasetFormat::kWebDataset;
}

absl::Status MakeCorpus(Options options) {
  BALLAST_ASSIGN_OR_RETURN(options.dataset.preset, ParsePreset(options.preset));
  options.dataset.format = FormatOf(options.format);
  if (isatty(STDERR_FILENO)) {
    options.dataset.progress = [directory = options.dataset.directory,
                                all = options.dataset.samples](uint64_t done) {
      std::fputs(ProgressBar(directory, static_cast<double>(done) / all,
                             absl::StrCat(done, " samples"))
                     .c_str(),
                 stderr);
      std::fflush(stderr);
    };
  }
  BALLAST_ASSIGN_OR_RETURN(const DatasetReport report,
                           WriteDataset(options.dataset));
  const std::string& directory = options.dataset.directory;
  const char* shards =
      options.dataset.format == DatasetFormat::kParquet ? "Parquet file"
      : options.dataset.format == DatasetFormat::kJsonl ? "JSON-lines file"
                                                        : "tar";
  std::cout << absl::StrFormat(
      "%s: %d samples, %d images, %.1f MB in %d %s%s\n", directory,
      options.dataset.samples, report.images, report.bytes * 1e-6,
      report.shards, shards, report.shards == 1 ? "" : "s");
  if (report.wrote_config) {
    std::cout << "configuration: " << directory << "/ballast.yaml\n";
  } else {
    std::cout << directory << "/ballast.yaml exists and was kept\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddMakeCorpus(CommandLine* line) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      line->program(), "make-corpus",
      R"(Draws a dataset of documents and scenes as WebDataset tars, Parquet files, a
folder of Energon or JSON lines, and writes a configuration (ballast.yaml) that serves it. Equal samples, seed,
preset and format give equal bytes.)",
      R"(  ballast-server make-corpus --out data --samples 512
  ballast-server make-corpus --out data --samples 64 --preset receipts --seed 7
  ballast-server make-corpus --out data --samples 512 --format parquet)",
      [options] { return MakeCorpus(*options); });
  command
      ->AddText("--out", &options->dataset.directory,
                "directory, created if needed")
      .Required()
      .TypeName("DIR");
  command
      ->AddWholeNumber("--samples", &options->dataset.samples,
                       "number of samples", 1, 256000000)
      .Required();
  command
      ->AddWholeNumber("--seed", &options->dataset.seed,
                       "seed of the random numbers: each draws another dataset")
      .ShowDefault();
  command
      ->AddText("--preset", &options->preset,
                "`mixed` adds pages, tables, scenes and samples of "
                "several images; `text` has no images")
      .OneOf({"receipts", "mixed", "text"})
      .ShowDefault();
  command->AddText("--format", &options->format, "format of the files")
      .OneOf({"webdataset", "jsonl", "parquet", "energon"})
      .ShowDefault();
}

}  // namespace ballast
