#ifndef BALLAST_SERVER_DATA_UNPACK_LINES_H_
#define BALLAST_SERVER_DATA_UNPACK_LINES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/data/index/index_options.h"
#include "server/data/journal.h"
#include "server/data/source_files.h"
#include "server/files/file.h"

// Lines of compressed files: a compressed stream has no offsets to read samples
// at, so the lines are unpacked once, next to the index, and read there.

namespace ballast {

struct UnpackReport {
  std::string folder;
  // Unpacked by this run.
  uint64_t files = 0;
  uint64_t packed_bytes = 0;
  uint64_t bytes = 0;
};

// Unpacks the compressed files of a shard of `source` that are not unpacked
// yet, `threads` at a time, or more of a store. Each file of lines appears
// whole or not at all, with the time of its compressed file, so that an index
// holds for lines that are unpacked again. `progress`, which may be empty,
// counts compressed bytes. Blocks until all are done. Errors: of the first file
// that has one: as Unpack and Storage::Open; ABORTED (it changed meanwhile);
// FAILED_PRECONDITION (its lines take more than 100 times its bytes and 64 MiB);
// RESOURCE_EXHAUSTED (the disk is full, or before the first byte is written:
// its room is less than the frames say that the lines take).
absl::StatusOr<UnpackReport> UnpackLines(
    const v1::Source& source, absl::string_view directory, const Shard& shard,
    uint32_t threads,
    const std::function<void(const IndexProgress&)>& progress);

// Removes from the folder of unpacked lines what is not of the source's files
// as they are now. Returns how many files it has removed. Errors: as
// ListSourceFiles; as FileError.
absl::StatusOr<uint64_t> RemoveOldLines(const v1::Source& source,
                                        absl::string_view directory);

// A file to look at, without an index.
struct FirstLines {
  // The file; or the first 16 MiB of a compressed one, cut after a line, in a
  // file that has no name any more.
  File file;
  // Compressed bytes that these are of; 0 of a file that is not compressed.
  uint64_t packed_bytes = 0;
  bool is_cut = false;
};

// Opens a file, or unpacks the first lines of a compressed one. Errors: as
// Storage::Open and Unpack.
absl::StatusOr<FirstLines> OpenFirstLines(const std::string& path);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_UNPACK_LINES_H_
