#ifndef BALLAST_SERVER_JOB_INDEX_SOURCES_H_
#define BALLAST_SERVER_JOB_INDEX_SOURCES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "server/config/config_loader.h"
#include "server/data/index/index_check.h"
#include "server/data/index/index_options.h"
#include "server/data/index/shard_scan.h"
#include "server/data/journal.h"
#include "server/data/source_files.h"
#include "server/data/unpack_lines.h"
#include "server/media/video/frame_table.h"
#include "server/media/video/video_reader.h"
#include "server/sample/source_index.h"

namespace ballast {

// As VideoReader::ReadFacts. Called from several threads at once.
using FactsReader =
    std::function<absl::StatusOr<VideoFacts>(const VideoBytes& video)>;

// Reads facts of videos for indexes. Data sets often refer to the same video
// several times, so the facts of the last `most` files, or the fact that they
// are damaged, are remembered: some 200 bytes each. A file that changes is read
// again. Videos that are only in memory are not remembered. Errors: as
// StreamProbe; UNAVAILABLE also if FFmpeg's libraries cannot be loaded, which
// is no sample's fault. If the decoder stays silent, the file is at fault.
// Thread-safe.
StreamProbe MakeVideoProbe(FactsReader read, size_t most = 65'536);

// The same for any reader of facts: remembers what `read` finds.
StreamProbe RememberFacts(StreamProbe read, size_t most = 65'536);

// The outcome for one source that has files.
struct SourceCheck {
  std::string source;
  CheckReport report;  // all 0 after a merge of shards
  // The index holds the results. Otherwise other shards are still to be merged.
  bool is_merged = false;
  // Counts of all its images; if not merged, the counts of the index as it was.
  ImageMarkCounts marks;
};

struct CheckSourcesOptions {
  // With more than one shard, the results stay in files next to the index until
  // they are merged.
  Shard shard;
  // Checks nothing, and merges the shards of earlier runs.
  bool merge = false;
  // May be empty. `source`: the source's name.
  std::function<void(const std::string& source, const IndexProgress&)> progress;
};

// Checks with CheckScan all images that the indexes of the sources mark for
// JPEG engines, one source after the other, with serve.threads threads each.
// Every index must be up to date. Errors: as CheckImages and MergeChecks,
// naming the source; as OpenSource and OpenModelTokenizer.
absl::StatusOr<std::vector<SourceCheck>> CheckSources(
    const LoadedConfig& config, const CheckSourcesOptions& options);

// The marks of images in the index of one source that has files.
struct SourceMarks {
  std::string source;
  uint64_t samples = 0;
  ImageMarkCounts marks;
};

// Reads the heads of the indexes. Errors: as OpenSource and OpenModelTokenizer.
absl::StatusOr<std::vector<SourceMarks>> CountMarks(const LoadedConfig& config);

// The outcome for one source.
struct SourceIndexing {
  std::string source;
  // Why an existing index is not up to date; empty if there was none.
  std::string stale;
  // The existing index fits the files: no file was read, and `report` holds
  // only the number of samples, the marks and the bad records.
  bool was_fresh = false;
  // Set only with was_fresh: all of the index was read and is undamaged.
  bool was_verified = false;
  // A mock source has no index; `report` holds only the number of samples.
  bool is_drawn = false;
  IndexReport report;
  // Lines that this run has unpacked, and files of lines that it has removed:
  // their compressed files have changed or are no longer the source's.
  UnpackReport unpacked;
  uint64_t removed_lines = 0;
  // Bad samples with more than batch.max_tokens tokens. If there are any, no
  // index was written.
  uint64_t too_long = 0;
  // What the index leaves out, and whether source.max_bad allows it
  // (CheckLeftOut).
  v1::LeftOut left_out;
  absl::Status left_out_status;
  std::string bad_list;  // the path of the list of bad records
  // Set if a shard was scanned: `report` is empty, no index was written.
  std::optional<ShardScanReport> shard;
  // Files that an earlier source also has, or that this one lists twice.
  std::vector<SharedFile> shared;
  // What the checkpoint's template writes otherwise than the built-in one in
  // one of its samples (TemplateComparison).
  std::string template_difference;
};

struct IndexSourcesOptions {
  // Rebuilds fresh indexes too, and reuses nothing.
  bool rebuild = false;
  // Keeps a hash of every medium (IndexOptions::hash). An index that
  // has hashes keeps them, also for new files, until a rebuild without this.
  bool hash = false;
  // Reads fresh indexes from end to end and rebuilds damaged ones. Without it
  // only their heads are read.
  bool verify = false;
  // Scans this shard of every source whose index is not up to date, and writes
  // no index. Another call, with `merge`, writes it once all shards are
  // scanned. At most one of the two may be set.
  std::optional<Shard> shard = std::nullopt;
  bool merge = false;
  // May be empty. `source`: the source's name.
  std::function<void(const std::string& source, const IndexProgress&)>
      progress = nullptr;
};

// Builds or refreshes the index of every source of `config`, one after the
// other, with serve.threads threads each, once it has unpacked compressed
// lines. Bad samples and files that two sources share are reported and are no
// error, however many they are. Errors: as UnpackLines, BuildIndex, ScanShard
// and MergeScans, naming the source; as MakeTokenizer.
absl::StatusOr<std::vector<SourceIndexing>> IndexSources(
    const LoadedConfig& config, const IndexSourcesOptions& options);

}  // namespace ballast

#endif  // BALLAST_SERVER_JOB_INDEX_SOURCES_H_
