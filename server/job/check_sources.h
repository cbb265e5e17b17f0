#ifndef BALLAST_SERVER_JOB_CHECK_SOURCES_H_
#define BALLAST_SERVER_JOB_CHECK_SOURCES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/config_loader.h"
#include "server/corpus/check/index_check.h"
#include "server/corpus/index/image_mark.h"
#include "server/corpus/index/index_options.h"
#include "server/corpus/journal.h"

namespace ballast {

// The outcome for one source that has files.
struct SourceCheck {
  std::string source;
  CheckReport report;  // all 0 after a merge of shards
  // The index holds the results. Otherwise other shards are still to be merged.
  bool is_merged = false;
  // Of all its images. If it is not merged, those of the index as it was.
  ImageMarkCounts marks;
};

struct CheckSourcesOptions {
  // With more than one, the results stay beside the index until they are
  // merged.
  Shard shard;
  // Checks nothing, and merges the shards of earlier runs.
  bool merge = false;
  // May be empty. `source`: the source's name.
  std::function<void(const std::string& source, const IndexProgress&)> progress;
};

// Checks with CheckScan what the indexes of the sources have marked for JPEG
// engines, one source after the other, with serve.threads threads each. Every
// index must be up to date. Errors: as CheckImages and MergeChecks, naming the
// source; as OpenSource and OpenModelTokenizer.
absl::StatusOr<std::vector<SourceCheck>> CheckSources(
    const LoadedConfig& config, const CheckSourcesOptions& options);

// What the index of one source that has files says of its images.
struct SourceMarks {
  std::string source;
  uint64_t samples = 0;
  ImageMarkCounts marks;
};

// Reads the heads of the indexes. Errors: as OpenSource and OpenModelTokenizer.
absl::StatusOr<std::vector<SourceMarks>> CountMarks(const LoadedConfig& config);

}  // namespace ballast

#endif  // BALLAST_SERVER_JOB_CHECK_SOURCES_H_
