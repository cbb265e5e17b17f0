#ifndef BALLAST_SERVER_DATA_PARQUET_UNPACK_H_
#define BALLAST_SERVER_DATA_PARQUET_UNPACK_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/files/file.h"

// Compressed files, by Arrow's codecs.

namespace ballast {

// Whether Unpack reads a file of this name: chat.jsonl.zst, chat.jsonl.gz. No
// name in a build without Arrow. Pure.
bool IsPacked(absl::string_view name);

// Takes the next unpacked bytes; `read` bytes of the compressed file have been
// decoded so far. An error ends the unpacking.
using TakeUnpacked =
    absl::FunctionRef<absl::Status(absl::string_view bytes, uint64_t read)>;

// Unpacks all frames of `file`, one after the other, in memory that the size of
// the file does not change: at most 128 MiB, the largest window. `name`, which
// IsPacked, is for messages. Blocks on the disk or the store. Errors: DATA_LOSS
// (damaged, or cut off); FAILED_PRECONDITION (a larger window); as File::ReadAt
// and `take`; UNIMPLEMENTED (a build without Arrow).
absl::Status Unpack(const File& file, absl::string_view name,
                    TakeUnpacked take);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_UNPACK_H_
