#include "server/corpus/index/index_builder.h"

#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "server/corpus/index/index_assembly.h"
#include "server/corpus/index/index_writer.h"
#include "server/corpus/index/source_scan.h"
#include "server/corpus/source_files.h"

namespace ballast {

absl::StatusOr<IndexReport> BuildIndex(const v1::Source& source,
                                       absl::string_view directory,
                                       const IndexOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<SourceScan> scan,
                           SourceScan::Create(source, directory, &options));
  std::vector<size_t> all(scan->files().size());
  std::iota(all.begin(), all.end(), size_t{0});
  std::vector<FileScan> scans(all.size());
  BALLAST_RETURN_IF_ERROR(scan->Run(all, [&](size_t file, FileScan found) {
    scans[file] = std::move(found);
    return absl::OkStatus();
  }));
  return WriteAssembled(source, directory, options, std::move(scans));
}

absl::StatusOr<IndexReport> WriteAssembled(const v1::Source& source,
                                           absl::string_view directory,
                                           const IndexOptions& options,
                                           std::vector<FileScan> scans) {
  AssembledIndex index = AssembleIndex(
      static_cast<uint32_t>(source.format()),
      source.format() == v1::Source::FORMAT_PARQUET, std::move(scans));
  index.contents.digests =
      DigestsOf(source, directory, options.key, !index.contents.videos.empty());
  if (!options.accept || options.accept(index.report)) {
    BALLAST_RETURN_IF_ERROR(
        WriteIndex(IndexPath(source, directory), index.contents));
  }
  return std::move(index.report);
}

}  // namespace ballast
