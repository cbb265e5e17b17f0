#include "server/corpus/make_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/config/path_pattern.h"
#include "server/corpus/energon/energon_folder.h"
#include "server/corpus/energon/energon_source.h"
#include "server/corpus/jsonl/media_root.h"
#include "server/corpus/parquet/parquet_columns.h"
#include "server/corpus/parquet/parquet_file.h"
#include "server/corpus/parquet/parquet_source.h"
#include "server/corpus/parquet/row_group_cache.h"

namespace ballast {

absl::Status CheckFormatIsRead(const v1::Source& source) {
  switch (source.format()) {
    case v1::Source::FORMAT_WEBDATASET:
    case v1::Source::FORMAT_JSONL:
    case v1::Source::FORMAT_ENERGON:
      return absl::OkStatus();
    case v1::Source::FORMAT_PARQUET:
      return Annotate(CheckParquetIsBuiltIn(),
                      absl::StrCat("source ", source.name()));
    default:
      return absl::UnimplementedError(absl::StrCat(
          "source ", source.name(),
          ": only webdataset, jsonl, parquet and energon sources have files to "
          "read"));
  }
}

absl::StatusOr<std::unique_ptr<FileSource>> MakeFileSource(
    const v1::Source& source, absl::string_view directory,
    std::shared_ptr<const IndexFile> index, std::vector<SourceFile> files,
    std::shared_ptr<OpenFileCache> cache) {
  BALLAST_RETURN_IF_ERROR(CheckFormatIsRead(source));
  if (source.format() == v1::Source::FORMAT_PARQUET) {
    BALLAST_ASSIGN_OR_RETURN(
        MediaRoot media,
        MediaRoot::Create(ResolvePath(directory, source.media_root())));
    return std::make_unique<ParquetSource>(
        std::move(index), std::move(files), std::move(cache),
        ParquetColumnsOf(source), std::move(media), RowGroupCache::OfProcess());
  }
  if (source.format() == v1::Source::FORMAT_JSONL) {
    BALLAST_ASSIGN_OR_RETURN(
        MediaRoot media,
        MediaRoot::Create(ResolvePath(directory, source.media_root())));
    return std::make_unique<JsonlSource>(std::move(index), std::move(files),
                                         std::move(cache), std::move(media));
  }
  if (source.format() == v1::Source::FORMAT_ENERGON) {
    BALLAST_ASSIGN_OR_RETURN(EnergonFolder folder,
                             OpenEnergonFolder(source, directory));
    return std::make_unique<EnergonSource>(std::move(index), std::move(files),
                                           std::move(cache),
                                           std::move(folder.fields));
  }
  return std::make_unique<WebDatasetSource>(std::move(index), std::move(files),
                                            std::move(cache));
}

}  // namespace ballast
