#ifndef BALLAST_SERVER_DATA_JSONL_VIDEO_JSON_H_
#define BALLAST_SERVER_DATA_JSONL_VIDEO_JSON_H_

#include <vector>

#include <simdjson.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/sample/medium.h"

// The videos and clips of audio of a conversation's JSON. All functions return
// INVALID_ARGUMENT with the reason.
namespace ballast {

// The video that a part of type `video` or `video_url` describes. Keys that
// would change its frames and are not read are refused by name.
absl::StatusOr<NamedMedium> ReadVideoPart(const simdjson::dom::element& part);

// Adds the videos of the keys `video` and `videos`. Returns whether there is
// such a key that is not null.
absl::StatusOr<bool> ReadVideoKeys(const simdjson::dom::object& root,
                                   std::vector<NamedMedium>* videos);

// Adds a video once its paths are known to be files: at most kMaxVideos, and
// kMaxImages pictures of all.
absl::Status AddVideo(NamedMedium video, std::vector<NamedMedium>* videos);

// The same for clips of audio, and for other kinds that travel as rows: parts
// of type `audio`; the keys `audio` and `audios`, or of the other kind's name;
// and at most kMaxVideos media.
absl::StatusOr<NamedMedium> ReadAudioPart(const simdjson::dom::element& part);
absl::StatusOr<bool> ReadRowsKeys(MediumKind kind,
                                  const simdjson::dom::object& root,
                                  std::vector<NamedMedium>* media);
absl::Status AddRowsMedium(MediumKind kind, NamedMedium medium,
                           std::vector<NamedMedium>* media);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_JSONL_VIDEO_JSON_H_
