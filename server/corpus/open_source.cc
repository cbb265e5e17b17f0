#include "server/corpus/open_source.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/config/path_pattern.h"
#include "server/corpus/file_source.h"
#include "server/corpus/jsonl/media_root.h"
#include "server/corpus/mock/mock_source.h"
#include "server/corpus/parquet/parquet_columns.h"
#include "server/corpus/parquet/parquet_file.h"
#include "server/corpus/parquet/parquet_source.h"
#include "server/corpus/parquet/row_group_cache.h"
#include "server/corpus/source_files.h"

namespace ballast {
namespace {

bool NeedsIndexing(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) ||
         absl::IsFailedPrecondition(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenSource(
    const v1::Source& source, absl::string_view directory, const IndexKey& key,
    std::shared_ptr<OpenFileCache> cache) {
  const bool jsonl = source.format() == v1::Source::FORMAT_JSONL;
  const bool parquet = source.format() == v1::Source::FORMAT_PARQUET;
  if (!jsonl && !parquet && source.format() != v1::Source::FORMAT_WEBDATASET) {
    return absl::UnimplementedError(absl::StrCat(
        "source ", source.name(),
        ": only webdataset, jsonl and parquet sources can be read"));
  }
  if (parquet) {
    const absl::Status built_in = CheckParquetIsBuiltIn();
    if (!built_in.ok()) {
      return Annotate(built_in, absl::StrCat("source ", source.name()));
    }
  }
  // Lists the files before it opens the index, so that a missing data file is
  // reported as such.
  BALLAST_ASSIGN_OR_RETURN(std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  auto index = OpenFreshIndex(source, directory, key);
  if (NeedsIndexing(index.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "source ", source.name(), ": ", index.status().message(),
        "; run `ballast-server index --config F` with this configuration"));
  }
  BALLAST_RETURN_IF_ERROR(index.status());
  if (parquet) {
    const auto row_groups = RowGroupCache::OfProcess();
    const uint64_t wanted =
        EstimateBytesOfGroups(**index, source.shuffle_groups());
    if (wanted > row_groups->capacity()) {
      LogWarning("source ", source.name(), ": ", source.shuffle_groups(),
                 " row groups (shuffle_groups) take some ", wanted >> 20,
                 " MiB, serve.row_group_memory is ",
                 row_groups->capacity() >> 20,
                 " MiB: row groups will be decoded more than once an epoch; "
                 "raise row_group_memory or lower shuffle_groups");
    }
    return std::make_unique<ParquetSource>(
        *std::move(index), std::move(files), std::move(cache),
        ParquetColumnsOf(source), row_groups);
  }
  if (!jsonl) {
    return std::make_unique<WebDatasetSource>(
        *std::move(index), std::move(files), std::move(cache));
  }
  BALLAST_ASSIGN_OR_RETURN(
      MediaRoot media,
      MediaRoot::Create(ResolvePath(directory, source.media_root())));
  return std::make_unique<JsonlSource>(*std::move(index), std::move(files),
                                       std::move(cache), std::move(media));
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
  return OpenSource(source, directory, key);
}

}  // namespace ballast
