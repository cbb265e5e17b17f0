#ifndef BALLAST_SERVER_CORPUS_INDEX_PROBE_VIDEOS_H_
#define BALLAST_SERVER_CORPUS_INDEX_PROBE_VIDEOS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/corpus/file.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/index_options.h"
#include "server/corpus/index/indexed_video.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/sample_source.h"

namespace ballast {

// INVALID_ARGUMENT if the model takes no videos.
absl::Status CheckTakesVideos(const IndexOptions& options);

// The clips and rates that the parts of a conversation name, one for each of
// the videos in a tar file; empty if it names none, or is no conversation.
// `pictures`: for each video, how many it has; 0: it is a file. Errors:
// INVALID_ARGUMENT (another number of parts; a part of pictures for a file, or
// the other way round; another number of pictures; as ReadVideoParts).
absl::StatusOr<std::vector<JsonVideo>> ReadClips(
    RawSample::TextFormat format, absl::string_view text,
    absl::Span<const size_t> pictures);

// The facts of a list of pictures, one size for all.
class ListProbe {
 public:
  // `named` has the rate.
  explicit ListProbe(const JsonVideo& named);

  // Adds the next picture; `name` is for messages. Errors: INVALID_ARGUMENT
  // (another size).
  absl::Status Add(absl::string_view name, const ImageSize& size);

  const IndexedVideo& video() const { return video_; }

 private:
  IndexedVideo video_ = {};
};

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
