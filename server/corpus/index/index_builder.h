#ifndef BALLAST_SERVER_CORPUS_INDEX_INDEX_BUILDER_H_
#define BALLAST_SERVER_CORPUS_INDEX_INDEX_BUILDER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/corpus/index/file_scan.h"
#include "server/corpus/index/index_options.h"

namespace ballast {

// Reads all files of `source` (paths relative to `directory`) and writes its
// index to source.index(), atomically: after an error the old index is as it
// was. Files that have not changed since the old index, under the same key of
// sizes, are not searched again: places and image sizes are taken from it, and
// lengths if the key and the limits allow. Bad samples are reported and left
// out; they are no error. Equal files give an equal index for any number of
// `threads`. Holds the index in memory until it is written. Blocks until then.
// Errors: as ExpandPath and File; ABORTED (a data file changed meanwhile);
// UNIMPLEMENTED (as CheckFormatIsRead).
absl::StatusOr<IndexReport> BuildIndex(const v1::Source& source,
                                       absl::string_view directory,
                                       const IndexOptions& options);

// The end of BuildIndex: writes the index of `source` from the scans of all its
// files, in their order, if options.accept agrees. Errors: as WriteIndex.
absl::StatusOr<IndexReport> WriteAssembled(const v1::Source& source,
                                           absl::string_view directory,
                                           const IndexOptions& options,
                                           std::vector<FileScan> scans);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_INDEX_BUILDER_H_
