#ifndef BALLAST_SERVER_DATA_INDEX_SHARD_SCAN_H_
#define BALLAST_SERVER_DATA_INDEX_SHARD_SCAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/data/index/index_options.h"
#include "server/data/journal.h"

namespace ballast {

struct ShardScanReport {
  // Of the shard, and of these the ones that an earlier run has scanned.
  uint64_t files = 0;
  uint64_t resumed = 0;
  uint64_t samples = 0;
  uint64_t images = 0;
  uint64_t skipped = 0;
  uint64_t num_bad = 0;
  // Those that this run has found, ordered by file, then by offset.
  std::vector<BadSample> bad;
};

// Scans a shard's share of the files of `source`, as BuildIndex would, and
// records each file in the shard's journal next to the index; files that the
// journal has and that have not changed are not scanned again. Shards may run
// at the same time, on machines that see the files at the same paths. Does not
// change the index: MergeScans does. Blocks until all is scanned. Errors: as
// BuildIndex; FAILED_PRECONDITION (another process works on the shard).
absl::StatusOr<ShardScanReport> ScanShard(const v1::Source& source,
                                          absl::string_view directory,
                                          const IndexOptions& options,
                                          const Shard& shard);

// Writes the index of `source` from the journals of all shards and removes
// them. The index is the same, byte for byte, as BuildIndex writes, whatever
// the number of shards. If options.accept refuses, the journals stay. Blocks on
// the disk. Errors: FAILED_PRECONDITION (no journals of these files and this
// configuration; a shard is missing or not at its end, or a file has changed
// since, naming the shard); as WriteIndex.
absl::StatusOr<IndexReport> MergeScans(const v1::Source& source,
                                       absl::string_view directory,
                                       const IndexOptions& options);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_INDEX_SHARD_SCAN_H_
