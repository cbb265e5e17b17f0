#ifndef BALLAST_SERVER_CORPUS_INDEX_PROBE_VIDEOS_H_
#define BALLAST_SERVER_CORPUS_INDEX_PROBE_VIDEOS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/corpus/file.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/index_options.h"
#include "server/corpus/index/indexed_video.h"
#include "server/corpus/jsonl/conversation_json.h"

namespace ballast {

// Reads the facts of the video in [offset, offset + size) of `file`, and adds
// the video to `hash` as an image is. `named` has its clip. Errors: as
// options.read_video; INVALID_ARGUMENT (there is none; a clip that ends before
// it starts); as File::ReadAt.
absl::StatusOr<IndexedVideo> ProbeVideo(const File& file, uint64_t offset,
                                        uint64_t size, const JsonVideo& named,
                                        const IndexOptions& options,
                                        ImagesHash* hash);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_PROBE_VIDEOS_H_
