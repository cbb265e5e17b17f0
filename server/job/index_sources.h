#ifndef BALLAST_SERVER_JOB_INDEX_SOURCES_H_
#define BALLAST_SERVER_JOB_INDEX_SOURCES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/config_loader.h"
#include "server/corpus/index/index_options.h"
#include "server/corpus/shared_files.h"

namespace ballast {

// What came of one source.
struct SourceIndexing {
  std::string source;
  // Why the index that was there is not up to date; empty where there was none.
  std::string stale;
  // The index was there and fits the files: none was read, `report` holds only
  // counts of samples.
  bool was_fresh = false;
  // With was_fresh: all of it was read, and is undamaged.
  bool was_verified = false;
  // A mock source: it has no index. `report` holds only counts of samples.
  bool is_drawn = false;
  IndexReport report;
  // Bad samples that are bad for having more than batch.max_tokens tokens. With
  // any, no index was written.
  uint64_t too_long = 0;
  // Its files that an earlier source has too, or that it lists twice.
  std::vector<SharedFile> shared;
};

struct IndexSourcesOptions {
  // Builds indexes that are fresh too, and reuses nothing of any.
  bool rebuild = false;
  // Reads indexes that are fresh from end to end, and builds those anew that
  // are damaged. Without it only their heads are read.
  bool verify = false;
  // May be empty. `source` is its name.
  std::function<void(const std::string& source, const IndexProgress&)> progress;
};

// Builds or refreshes the index of every source of `config`, one after the
// other, with serve.threads threads each. Bad samples are reported, not an
// error, and neither are files that two sources share. Errors: those of
// BuildIndex, naming the source; MakeTokenizer's.
absl::StatusOr<std::vector<SourceIndexing>> IndexSources(
    const LoadedConfig& config, const IndexSourcesOptions& options);

}  // namespace ballast

#endif  // BALLAST_SERVER_JOB_INDEX_SOURCES_H_
