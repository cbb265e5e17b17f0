#ifndef BALLAST_SERVER_CORPUS_INDEX_PROBE_VIDEOS_H_
#define BALLAST_SERVER_CORPUS_INDEX_PROBE_VIDEOS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/file.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/index_options.h"
#include "server/corpus/index/indexed_video.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/sample_source.h"

namespace ballast {

// INVALID_ARGUMENT if the model takes no videos.
absl::Status CheckTakesVideos(const IndexOptions& options);

// The clips that the parts of a conversation name, one for each of `videos`
// members of a tar file; empty if it names none, or is no conversation. Errors:
// INVALID_ARGUMENT (another number of them, a list of pictures, as
// ReadVideoParts).
absl::StatusOr<std::vector<JsonVideo>> ReadClips(RawSample::TextFormat format,
                                                 absl::string_view text,
                                                 size_t videos);

// Reads the facts of the video in [offset, offset + size) of `file`, and adds
// the video to `hash` as an image is. `named` has its clip. Errors: as
// options.read_video; INVALID_ARGUMENT (there is none; a clip that ends before
// it starts); as File::ReadAt.
absl::StatusOr<IndexedVideo> ProbeVideo(const File& file, uint64_t offset,
                                        uint64_t size, const JsonVideo& named,
                                        const IndexOptions& options,
                                        ImagesHash* hash);

// As above, of a video whose bytes are in memory; `name` is for messages.
absl::StatusOr<IndexedVideo> ProbeVideo(absl::string_view bytes,
                                        const std::string& name,
                                        const JsonVideo& named,
                                        const IndexOptions& options,
                                        ImagesHash* hash);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_PROBE_VIDEOS_H_
