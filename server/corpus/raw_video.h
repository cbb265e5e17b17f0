#ifndef BALLAST_SERVER_CORPUS_RAW_VIDEO_H_
#define BALLAST_SERVER_CORPUS_RAW_VIDEO_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/owned_fd.h"
#include "server/corpus/file.h"

namespace ballast {

// A video's bytes: `size` bytes from `offset` on of an open file.
struct RawVideo {
  std::shared_ptr<const OwnedFd> fd;
  uint64_t offset = 0;
  uint64_t size = 0;
};

// The video in [offset, offset + size) of the file. Reads nothing of a mounted
// file; an object of a store is fetched into memory, which the descriptor then
// names. Errors: as FileView::ReadAt; UNAVAILABLE (no descriptor, no memory);
// INVALID_ARGUMENT (an object's video has over kMaxSampleBytes).
absl::StatusOr<RawVideo> OpenVideo(FileView file, uint64_t offset,
                                   uint64_t size);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_RAW_VIDEO_H_
