#ifndef BALLAST_SERVER_CORPUS_INDEX_COMPRESSED_FILE_H_
#define BALLAST_SERVER_CORPUS_INDEX_COMPRESSED_FILE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/corpus/file.h"

namespace ballast {

// Refuses a tar or a file of JSON that is compressed: it has no offsets to read
// samples at. Its first bytes say so, whatever its name. Errors:
// FAILED_PRECONDITION (it is), with `name` and what to do; as File::ReadAt.
absl::Status CheckNotCompressed(const File& file, absl::string_view name);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_COMPRESSED_FILE_H_
