#include "server/command/commands.h"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/machine.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "server/command/draw/dataset.h"
#include "server/command/draw/draw_sample.h"
#include "server/config/config_loader.h"
#include "server/data/journal.h"
#include "server/data/open_source.h"
#include "server/data/tar/write_tars.h"
#include "server/job/job_setup.h"
#include "server/text/model_tokenizer.h"
#include "server/text/text_token.h"

namespace ballast {

namespace {

// "2 images, 1 videos, ", or "" without media.
std::string Listed(const MediaCounts& media) {
  return Total(media) == 0 ? "" : absl::StrCat(Describe(media), ", ");
}

struct MakeCorpusOptions {
  DatasetOptions dataset;
  std::string preset = "mixed";
  std::string format = "webdataset";
};

DatasetFormat GetFormat(const std::string& name) {
  if (name == "parquet") return DatasetFormat::kParquet;
  if (name == "energon") return DatasetFormat::kEnergon;
  if (name == "jsonl") return DatasetFormat::kJsonl;
  return DatasetFormat::kWebDataset;
}

absl::Status MakeCorpus(MakeCorpusOptions options) {
  BALLAST_ASSIGN_OR_RETURN(options.dataset.preset, ParsePreset(options.preset));
  options.dataset.format = GetFormat(options.format);
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
      "%s: %d samples, %s%.1f MB in %d %s%s\n", directory,
      options.dataset.samples, Listed(report.media), report.bytes * 1e-6,
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
  auto options = std::make_shared<MakeCorpusOptions>();
  Command* command = line->AddCommand(
      line->program(), "make-corpus",
      R"(Draws a dataset of documents and scenes as WebDataset tars, JSON lines, Parquet
files or a folder of Energon, and writes a configuration (ballast.yaml) that
serves it. Equal samples, seed, preset and format give equal bytes.)",
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
                "several images; `text` has no images; `speech` has audio, "
                "made of tones")
      .OneOf({"receipts", "mixed", "text", "speech"})
      .ShowDefault();
  command->AddText("--format", &options->format, "format of the files")
      .OneOf({"webdataset", "jsonl", "parquet", "energon"})
      .ShowDefault();
}

namespace {

struct RepackFlags {
  std::string config;
  std::string source;
  std::string shard = "1/1";
  RepackOptions repack;
};

absl::StatusOr<const v1::Source*> FindSource(const v1::Config& config,
                                             const std::string& name) {
  std::vector<std::string> names;
  for (const v1::Source& source : config.sources()) {
    if (source.name() != name) {
      names.push_back(source.name());
    } else if (source.format() == v1::Source::FORMAT_MOCK) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--source ", name, ": it is drawn, and has no samples to write"));
    } else {
      return &source;
    }
  }
  return absl::NotFoundError(absl::StrCat("--source ", name,
                                          ": the configuration has ",
                                          absl::StrJoin(names, ", ")));
}

absl::Status RunRepack(RepackFlags options) {
  BALLAST_ASSIGN_OR_RETURN(options.repack.shard, ParseShard(options.shard));
  BALLAST_ASSIGN_OR_RETURN(LoadedConfig config, LoadConfig(options.config));
  v1::Config& c = config.config;
  BALLAST_RETURN_IF_ERROR(OpenModelRecipe(&c).status());
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           OpenModelTokenizer(c.mutable_model()));
  BALLAST_ASSIGN_OR_RETURN(const v1::Source* const source,
                           FindSource(c, options.source));
  BALLAST_ASSIGN_OR_RETURN(
      const std::unique_ptr<FileSource> opened,
      OpenSource(*source, config.directory, GetIndexKey(c, *tokenizer)));
  RepackOptions& repack = options.repack;
  repack.name = source->name();
  repack.threads = ThreadsOrCores(c.serve().threads());
  if (isatty(STDERR_FILENO)) {
    repack.progress = [&, begin = std::chrono::steady_clock::now()](
                          uint64_t done, uint64_t all) {
      const std::chrono::duration<double> elapsed =
          std::chrono::steady_clock::now() - begin;
      const double part = all == 0 ? 1.0 : static_cast<double>(done) / all;
      std::fputs(
          ProgressBar(repack.name, part,
                      absl::StrCat(done, " samples  ",
                                   TimeLeft(part, elapsed.count()), "    "))
              .c_str(),
          stderr);
      std::fflush(stderr);
    };
  }
  BALLAST_ASSIGN_OR_RETURN(const RepackReport report, Repack(*opened, repack));
  std::cout << absl::StrFormat(
      "%s: %d samples, %s%.1f MB in %d tars", repack.name, report.samples,
      Listed(report.media), report.bytes * 1e-6, report.tars - report.resumed);
  if (report.resumed > 0) {
    std::cout << "; " << report.resumed << " were there already";
  }
  std::cout << "\nread them with: {name: " << repack.name
            << ", format: webdataset, path: \"" << repack.directory << "/"
            << repack.name << "-*.tar\""
            << (source->pairs() ? ", pairs: true" : "") << "}\n";
  return absl::OkStatus();
}

}  // namespace

void AddRepack(CommandLine* line) {
  auto options = std::make_shared<RepackFlags>();
  Command* command = line->AddCommand(
      line->program(), "repack",
      R"(Writes the samples of a source as WebDataset tars, in the order of its index,
which must be up to date. Texts and media stay as they are. Rows of
Parquet are shuffled within a window of row groups; rows of tars among all.

A run that was ended continues after the tars that it has written when run
again. To spread it over machines, run --shard 1/N to N/N with one directory.)",
      "  ballast-server repack --config ballast.yaml --source web --out out\n"
      "  ballast-server repack --config ballast.yaml --source web --out out "
      "--shard 3/8",
      [options] { return RunRepack(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command->AddText("--source", &options->source, "name of the source")
      .Required()
      .TypeName("NAME");
  command
      ->AddText("--out", &options->repack.directory,
                "directory of the tars, created if needed")
      .Required()
      .TypeName("DIR");
  command->AddText("--shard", &options->shard, "write only part I of N")
      .TypeName("I/N");
  command
      ->AddWholeNumber("--samples-per-tar", &options->repack.samples_per_tar,
                       "samples in a tar", 1, 1000000)
      .ShowDefault();
}

}  // namespace ballast
