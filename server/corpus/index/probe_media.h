#ifndef BALLAST_SERVER_CORPUS_INDEX_PROBE_MEDIA_H_
#define BALLAST_SERVER_CORPUS_INDEX_PROBE_MEDIA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/image_facts.h"
#include "server/corpus/index/index_options.h"
#include "server/corpus/index/indexed_video.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/jsonl/media_root.h"

// The headers of media that a sample names below the source's media_root. Each
// is added to `hash`; images and pictures of videos take from `left`, the bytes
// that the sample may still have. Errors: as ProbeImage and ProbeVideo, with
// the file's path; of a file that is missing the kind, and an archive that
// stands in its place; as File::ReadAt.
namespace ballast {

absl::Status ProbeNamedImages(absl::Span<const std::string> paths,
                              const MediaRoot& media,
                              const IndexOptions& options, uint64_t* left,
                              ImagesHash* hash, ImageFacts* facts);

// A video file, or the pictures of a list, which must have one size.
absl::StatusOr<IndexedVideo> ProbeNamedVideo(const JsonVideo& named,
                                             const MediaRoot& media,
                                             const IndexOptions& options,
                                             uint64_t* left, ImagesHash* hash);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_PROBE_MEDIA_H_
