#ifndef BALLAST_SERVER_CORPUS_CHECK_MERGE_CHECKS_H_
#define BALLAST_SERVER_CORPUS_CHECK_MERGE_CHECKS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/corpus/check/check_plan.h"
#include "server/corpus/index/image_mark.h"

namespace ballast {

// Writes the results in the journals of all shards to the index at `path`, as
// WriteIndex does, and removes its journals. The index is the same, byte for
// byte, whatever the number of shards. An index whose images are all checked is
// left as it is. `size` is that of the checks. Returns the marks of the index.
// Blocks on the disk. Errors: FAILED_PRECONDITION (no journal of this index; a
// shard is missing or not at its end, naming it); as IndexFile::Open,
// IndexFile::Verify and WriteIndex.
absl::StatusOr<ImageMarkCounts> MergeChecks(const std::string& path,
                                            const CheckUnitSize& size = {});

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_CHECK_MERGE_CHECKS_H_
