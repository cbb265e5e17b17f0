#include "server/data/open_source.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/data/cooked_parser.h"
#include "server/data/form_parser.h"
#include "server/data/mock_source.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/parquet_parser.h"
#include "server/data/record_parser.h"
#include "server/data/source_files.h"
#include "server/files/path_pattern.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// All formats with files. A new one adds a line here.
constexpr const RecordFormat* kFormats[] = {
    &kWebDatasetFormat, &kJsonlFormat,    &kParquetFormat,
    &kEnergonFormat,    &kMegatronFormat, &kCsvFormat,
};

absl::StatusOr<std::shared_ptr<const Recipe>> GetRecipe(
    const v1::Source& source, absl::string_view directory) {
  auto recipe =
      Recipes::OfProcess().Get(ResolvePath(directory, source.recipe()));
  if (recipe.ok()) return recipe;
  return Annotate(recipe.status(), "sources[].recipe");
}

bool NeedsIndexing(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) ||
         absl::IsFailedPrecondition(status);
}

// Refuses an index with images that may be damaged and that the engines would
// decode without a word.
absl::Status RequireChecks(const v1::Source& source,
                           const ImageMarkCounts& counts) {
  if (counts.checked()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "source ", source.name(), ": model.decode is device, and ",
      counts.with(ImageCheckResult::kUnchecked), " of ", counts.marked(),
      " images that JPEG engines may decode have not been checked, and the "
      "engines do not report damage; run `ballast-server index --check "
      "--config "
      "F` with this configuration, or accept wrong pixels of damaged files "
      "with "
      "model.device_unchecked: true"));
}

// Warns if the row groups that are read at the same time do not fit in memory.
void WarnOfRowGroups(const v1::Source& source, const IndexFile& index) {
  const uint64_t capacity = RowGroupCache::OfProcess()->capacity();
  const uint64_t wanted = EstimateBytesOfGroups(index, source.shuffle_groups());
  if (wanted <= capacity) return;
  LogWarning("source ", source.name(), ": ", source.shuffle_groups(),
             " row groups (shuffle_groups) take some ", wanted >> 20,
             " MiB, serve.row_group_memory is ", capacity >> 20,
             " MiB: row groups will be decoded more than once an epoch; "
             "raise row_group_memory or lower shuffle_groups");
}

}  // namespace

absl::StatusOr<const RecordFormat*> FindFormat(const v1::Source& source) {
  for (const RecordFormat* format : kFormats) {
    if (format->format != source.format()) continue;
    if (format->check != nullptr) {
      BALLAST_RETURN_IF_ERROR(
          Annotate(format->check(), absl::StrCat("source ", source.name())));
    }
    return format;
  }
  return absl::UnimplementedError(absl::StrCat(
      "source ", source.name(),
      ": only webdataset, jsonl, parquet, energon, megatron and csv sources "
      "have files to read"));
}

absl::StatusOr<std::unique_ptr<RecordParser>> MakeParser(
    const v1::Source& source, absl::string_view directory) {
  BALLAST_ASSIGN_OR_RETURN(const RecordFormat* format, FindFormat(source));
  if (source.has_form()) {
    BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<RawRecordParser> raw,
                             format->make_raw(source, directory));
    auto parser = MakeFormParser(std::move(raw), source);
    if (parser.ok()) return parser;
    return Annotate(parser.status(), absl::StrCat("source ", source.name()));
  }
  if (source.recipe().empty()) return format->make(source, directory);
  BALLAST_ASSIGN_OR_RETURN(std::shared_ptr<const Recipe> recipe,
                           GetRecipe(source, directory));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<RawRecordParser> raw,
                           format->make_raw(source, directory));
  return MakeCookedParser(std::move(raw), std::move(recipe), source.name());
}

absl::StatusOr<std::string> GetRecipeName(const v1::Source& source,
                                          absl::string_view directory) {
  if (source.recipe().empty()) return std::string();
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const Recipe> recipe,
                           GetRecipe(source, directory));
  return recipe->name();
}

EncodedRule GetEncodedRule(const v1::Model& model) {
  if (model.decode() != v1::Model::DECODE_DEVICE) return EncodedRule::kNone;
  return model.device_unchecked() ? EncodedRule::kUnchecked
                                  : EncodedRule::kChecked;
}

absl::StatusOr<std::unique_ptr<FileSource>> OpenSource(
    const v1::Source& source, absl::string_view directory, const IndexKey& key,
    std::shared_ptr<OpenFileCache> cache, EncodedRule rule) {
  BALLAST_RETURN_IF_ERROR(FindFormat(source).status());
  // Lists the files before it opens the index, so that a missing data file is
  // reported as such.
  BALLAST_ASSIGN_OR_RETURN(std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  auto index = OpenFreshIndex(source, directory, key, rule);
  if (NeedsIndexing(index.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "source ", source.name(), ": ", index.status().message(),
        "; run `ballast-server index --config F` with this configuration"));
  }
  BALLAST_RETURN_IF_ERROR(index.status());
  if (source.format() == v1::Source::FORMAT_PARQUET) {
    WarnOfRowGroups(source, **index);
  }
  return MakeFileSource(source, directory, *std::move(index), std::move(files),
                        std::move(cache));
}

absl::StatusOr<std::unique_ptr<SampleSource>> OpenAnySource(
    const v1::Source& source, const v1::Config& config,
    absl::string_view directory, const IndexKey& key) {
  if (source.format() == v1::Source::FORMAT_MOCK) {
    return MockSource::Create(source, config.model(), config.batch());
  }
  if (source.format() == v1::Source::FORMAT_PARQUET) {
    RowGroupCache::OfProcess()->SetCapacity(config.serve().row_group_memory());
  }
  const EncodedRule rule = GetEncodedRule(config.model());
  BALLAST_ASSIGN_OR_RETURN(
      std::unique_ptr<SampleSource> opened,
      OpenSource(source, directory, key, OpenFileCache::OfProcess(), rule));
  if (rule == EncodedRule::kChecked) {
    BALLAST_RETURN_IF_ERROR(
        RequireChecks(source, opened->index().mark_counts()));
  }
  return opened;
}

}  // namespace ballast
