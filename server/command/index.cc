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
#include "common/status_macros.h"
#include "common/table.h"
#include "server/config/config_loader.h"
#include "server/data/index/bad_records.h"
#include "server/data/journal.h"
#include "server/data/source_files.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "server/model/model_warnings.h"
#include "server/text/chat_writer.h"

namespace ballast {
namespace {

struct IndexCommandOptions {
  std::string config;
  bool rebuild = false;
  bool verify = false;
  bool check = false;
  bool hash = false;
  std::string shard;
  bool merge = false;
  uint64_t verify_recipe = 0;
};

// Prints a progress line that overwrites the one before, with the time left
// from the first call for a source on; for terminals.
class Progress {
 public:
  Progress(const char* things, const char* bad) : things_(things), bad_(bad) {}

  void operator()(const std::string& source, const IndexProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (source != source_) {
      source_ = source;
      begin_ = now;
    }
    const double done =
        progress.bytes_total == 0
            ? 1.0
            : static_cast<double>(progress.bytes_done) / progress.bytes_total;
    const std::chrono::duration<double> elapsed = now - begin_;
    std::fputs(
        ProgressBar(source, done,
                    absl::StrCat(progress.samples, " ", things_, ", ",
                                 progress.bad, " ", bad_, "  ",
                                 TimeLeft(done, elapsed.count()), "    "))
            .c_str(),
        stderr);
    std::fflush(stderr);
  }

 private:
  const char* things_;
  const char* bad_;
  std::string source_;
  std::chrono::steady_clock::time_point begin_;
};

void PrintShared(const SharedFile& file) {
  PrintLine("warning: source ", file.source, " has ", file.file,
            file.source == file.as_source
                ? absl::StrCat(" twice, first as ", file.as_file)
                : absl::StrCat(", which is in source ", file.as_source,
                               " too, as ", file.as_file),
            ": its samples come more often than the weights say");
}

void PrintShard(const std::string& source, const ShardScanReport& report,
                const Shard& shard) {
  PrintLine(source, ": shard ", shard.number, "/", shard.count, ": ",
            report.files, " files",
            report.resumed > 0 ? absl::StrCat(", ", report.resumed,
                                              " of them by an earlier run")
                               : "",
            ", ", report.samples, " samples, ", report.images, " images, ",
            report.skipped, " skipped, ", report.num_bad, " bad");
  std::cout << ListBad(report.bad);
}

void PrintUnpacked(const SourceIndexing& result) {
  const UnpackReport& unpacked = result.unpacked;
  if (unpacked.files > 0) {
    PrintLine(result.source, ": unpacked ", unpacked.files, " files, ",
              unpacked.packed_bytes, " -> ", unpacked.bytes, " bytes, into ",
              unpacked.folder);
  }
  if (result.removed_lines > 0) {
    PrintLine(result.source, ": removed ", result.removed_lines,
              " unpacked files, whose compressed ones have changed or are "
              "gone");
  }
}

void PrintLeftOut(const SourceIndexing& result) {
  const IndexReport& report = result.report;
  std::cout << ListBad(report.bad);
  if (!report.bad.empty()) {
    PrintLine("  all bad records: ", result.bad_list);
  }
  if (report.known_bad > 0) {
    PrintLine("  left out as before: ", report.known_bad,
              " bad records of which no list is there; --rebuild lists them");
  }
}

void PrintResult(const SourceIndexing& result) {
  for (const SharedFile& file : result.shared) PrintShared(file);
  if (!result.template_difference.empty()) {
    PrintLine("warning: ", result.template_difference);
  }
  const IndexReport& report = result.report;
  if (result.is_drawn) {
    PrintLine(result.source, ": ", report.samples,
              " samples, drawn: there is no index to build");
    return;
  }
  if (result.was_fresh) {
    PrintLine(result.source, ": ", report.samples, " samples, index is up to ",
              "date", result.was_verified ? " and undamaged" : "");
    PrintLeftOut(result);
    return;
  }
  MediaCounts streams = report.media;
  streams[MediumKind::kImage] = 0;
  PrintLine(result.source, ": ", report.samples, " samples, ",
            report.media[MediumKind::kImage], " images, ", Describe(streams),
            Total(streams) > 0 ? ", " : "", report.skipped, " skipped, ",
            result.left_out.bad(), " bad");
  if (!result.stale.empty()) PrintLine("  rebuilt: ", result.stale);
  if (report.reused_files > 0) {
    PrintLine("  reused: places and image sizes of ", report.reused_samples,
              " samples in ", report.reused_files, " files, text lengths of ",
              report.reused_lengths);
  } else if (report.reused_lengths > 0) {
    PrintLine("  reused: text lengths of ", report.reused_lengths, " samples");
  }
  if (report.filtered > 0) {
    PrintLine("  left out by filters or the recipe: ", report.filtered,
              " records");
  }
  for (const auto& [extension, count] : report.ignored) {
    PrintLine("  ignored: ", count, " members .", extension);
  }
  for (const auto& [cause, samples] : report.unlearnt) {
    std::cout << "  warning: nothing is learnt of " << samples.count
              << " samples, first " << samples.first << ": "
              << (cause.empty() ? "as before; --rebuild says why" : cause)
              << "\n";
  }
  PrintLeftOut(result);
}

absl::Status Check(const LoadedConfig& config,
                   const IndexCommandOptions& options, const Shard& shard) {
  CheckSourcesOptions check_options;
  check_options.shard = shard;
  check_options.merge = options.merge;
  if (isatty(STDERR_FILENO)) {
    check_options.progress = Progress("images", "not clean");
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceCheck> results,
                           CheckSources(config, check_options));
  for (const SourceCheck& result : results) {
    std::cout << (options.merge ? absl::StrCat(result.source, ": merged\n",
                                               MarksText(result.marks))
                                : CheckText(result, shard));
  }
  std::cout.flush();
  return absl::OkStatus();
}

// Warns of shards that a source's glob does not find; names that the pattern
// gives one by one are all that is wanted.
absl::Status WarnOfMissingShards(const LoadedConfig& config) {
  for (const v1::Source& source : config.config.sources()) {
    if (source.format() == v1::Source::FORMAT_MOCK ||
        source.path().find_first_of("*?[") == std::string::npos) {
      continue;
    }
    BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceFile> files,
                             ListSourceFiles(source, config.directory));
    std::vector<std::string> names;
    for (const SourceFile& file : files) names.push_back(file.name);
    const std::string missing = MissingShards(names);
    if (!missing.empty()) {
      PrintLine("warning: source ", source.name(), ": ", missing);
    }
  }
  return absl::OkStatus();
}

// Builds the indexes, or with index_options.merge merges their shards.
// Sets `all_fresh` if there was nothing to do.
absl::Status Build(const LoadedConfig& config,
                   const IndexCommandOptions& options,
                   const IndexSourcesOptions& index_options, bool* all_fresh) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceIndexing> results,
                           IndexSources(config, index_options));
  *all_fresh = true;
  for (const SourceIndexing& result : results) {
    *all_fresh = *all_fresh && (result.was_fresh || result.is_drawn);
  }
  if (*all_fresh && index_options.merge) return absl::OkStatus();
  uint64_t too_long = 0;
  std::string empty;
  absl::Status left_out;
  for (const SourceIndexing& result : results) {
    PrintUnpacked(result);
    if (result.shard.has_value()) {
      PrintShard(result.source, *result.shard, *index_options.shard);
      continue;
    }
    PrintResult(result);
    if (config.config.model().decode() == v1::Model::DECODE_DEVICE &&
        !options.check && !result.is_drawn) {
      std::cout << MarksText(result.report.marks);
    }
    too_long += result.too_long;
    left_out.Update(result.left_out_status);
    if (result.report.samples == 0 && empty.empty()) empty = result.source;
  }
  BALLAST_RETURN_IF_ERROR(WarnOfMissingShards(config));
  std::cout.flush();
  if (too_long > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        too_long,
        " samples have more than batch.max_tokens tokens, so no index of their "
        "sources was written; raise max_tokens, or set batch.on_too_long to "
        "truncate_text or skip"));
  }
  // Servers refuse it, too.
  BALLAST_RETURN_IF_ERROR(left_out);
  if (empty.empty()) return absl::OkStatus();
  // Servers refuse such a source, too.
  return absl::FailedPreconditionError(absl::StrCat(
      "source ", empty,
      ": its index holds no sample: either all are bad, skipped or left out by "
      "filters, as said above, or `path` names the wrong files; records of "
      "another form become samples by a recipe (docs/recipes.md)"));
}

absl::Status VerifyRecipe(const LoadedConfig& config, uint64_t samples) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<RecipeCheck> checks,
                           VerifyRecipes(config, samples));
  if (checks.empty())
    std::cout << "neither a source nor the model has a recipe\n";
  for (const RecipeCheck& check : checks) {
    std::cout << check.source
              << (check.of_images ? ": model.recipe" : ": the recipe")
              << " made the same of " << check.samples
              << (check.of_images ? " samples' images" : " records")
              << " twice more\n";
  }
  std::cout.flush();
  return absl::OkStatus();
}

absl::Status Index(const IndexCommandOptions& options) {
  const bool in_shards = !options.shard.empty();
  BALLAST_ASSIGN_OR_RETURN(const Shard shard,
                           ParseShard(in_shards ? options.shard : "1/1"));
  if (in_shards && options.merge) {
    return absl::InvalidArgumentError(
        "--shard does a part, --merge puts all parts together: give one of "
        "them");
  }
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  for (const std::string& warning : ModelWarnings(config.config.model())) {
    std::cout << "warning: " << warning << "\n";
  }
  for (const std::string& warning : TemplateWarnings(config.config.model())) {
    std::cout << "warning: " << warning << "\n";
  }
  if (options.check && (options.merge || shard.count > 1)) {
    // Another machine may be reading the index: it must stay as it is.
    if (options.rebuild || options.verify || options.hash) {
      return absl::InvalidArgumentError(
          "--check with --shard and --merge work on the index as it is: build "
          "it first, with `ballast-server index` without --check");
    }
    return Check(config, options, shard);
  }
  IndexSourcesOptions index_options;
  index_options.rebuild = options.rebuild;
  index_options.verify = options.verify;
  index_options.merge = options.merge;
  index_options.hash = options.hash;
  if (in_shards && !options.check) index_options.shard = shard;
  if (isatty(STDERR_FILENO)) {
    index_options.progress = Progress("samples", "bad");
  }
  bool all_fresh = false;
  BALLAST_RETURN_IF_ERROR(Build(config, options, index_options, &all_fresh));
  if (options.verify_recipe > 0) {
    BALLAST_RETURN_IF_ERROR(VerifyRecipe(config, options.verify_recipe));
  }
  const v1::Batch& batch = config.config.batch();
  if (!in_shards && (batch.tokens() > 0 || batch.packs() > 0)) {
    // Opening the job finds the steps and keeps their table for servers.
    BALLAST_RETURN_IF_ERROR(OpenJob(config).status());
  }
  // Once all indexes are whole, only checks are left to merge.
  if (options.merge && !all_fresh) return absl::OkStatus();
  return options.check || options.merge ? Check(config, options, shard)
                                        : absl::OkStatus();
}

}  // namespace

void AddIndex(CommandLine* line) {
  auto options = std::make_shared<IndexCommandOptions>();
  Command* command = line->AddCommand(
      line->program(), "index",
      R"(Builds or refreshes the index of every source: each sample's place, its
image sizes, its text length. An out-of-date index is rebuilt from the parts
that are still valid: unchanged files are not read again, and texts are measured
again only if the tokenizer, the template or the limits have changed.

Damaged samples are left out; ten of each cause are listed with file, offset and
reason, all of them in INDEX.bad beside the index. Fails if they are more than
the source's max_bad allows. Warns of
data files that occur twice, in one source or in two, and where files next to
the tokenizer have another mean or std than the model. Fails if samples
are too long and batch.on_too_long is `error`.

Lines compressed by zstd or gzip (chat.jsonl.zst, .gz) are unpacked first, once,
into the folder INDEX.lines next to the index, and are read there from then on.

An index knows an image by its length and its first 4096 bytes. --hash reads
whole images and videos and keeps a hash of each, which servers compare: a bit
that has flipped elsewhere is then a bad sample, not another pixel.

To spread it over machines or processes, run --shard 1/N to N/N anywhere that
sees the files, then --merge: the index is the same, byte for byte. A shard that
was ended continues after the files that it has read when it is run again.

A recipe must be pure: --verify-recipe N runs it again for N samples of each
source, and fails if it makes another sample of a record (docs/recipes.md).

With `decode: device` the GPUs' JPEG engines decode, and they report no damage:
--check reads every file that they may decode, once, on all cores, and notes in
the index which are sound. Only those travel to them. A check that was ended
goes on where it was when it is run again. To spread it over machines, build the
index, run --check with --shard 1/N to N/N, then --merge again.)",
      "  ballast-server index --config ballast.yaml\n"
      "  ballast-server index --config ballast.yaml --verify\n"
      "  ballast-server index --config ballast.yaml --shard 3/8\n"
      "  ballast-server index --config ballast.yaml --merge\n"
      "  ballast-server index --config ballast.yaml --hash\n"
      "  ballast-server index --config ballast.yaml --verify-recipe 1000\n"
      "  ballast-server index --config ballast.yaml --check\n"
      "  ballast-server index --config ballast.yaml --check --shard 3/8",
      [options] { return Index(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command->AddFlag("--rebuild", &options->rebuild,
                   "read all files again, even if the index is up to date");
  command->AddFlag("--verify", &options->verify,
                   "check up-to-date indexes from end to end, and rebuild the "
                   "damaged ones");
  command->AddFlag(
      "--check", &options->check,
      "then check every file that JPEG engines may decode and that has not "
      "been checked");
  command->AddFlag(
      "--hash", &options->hash,
      "keep a hash of every image and video, which servers compare; "
      "later builds keep it up, until a --rebuild without --hash");
  command
      ->AddWholeNumber(
          "--verify-recipe", &options->verify_recipe,
          "then run the recipes of N samples a source twice more, in "
          "two processes and in two orders, and compare the answers")
      .TypeName("N");
  command
      ->AddText("--shard", &options->shard,
                "read only part I of N of the files, and write no index; with "
                "--check, check only part I of N of the images")
      .TypeName("I/N");
  command->AddFlag("--merge", &options->merge,
                   "write the index from all shards; if it is up to date, "
                   "enter the results of all shards of a check");
}

}  // namespace ballast
