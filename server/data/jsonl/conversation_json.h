#ifndef BALLAST_SERVER_DATA_JSONL_CONVERSATION_JSON_H_
#define BALLAST_SERVER_DATA_JSONL_CONVERSATION_JSON_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/sample/medium.h"
#include "server/sample/sample_source.h"

// Its header takes a second to read.
namespace simdjson::dom {
class object;
}

namespace ballast {

// The parts of a conversation's JSON that the corpus needs. server/text handles
// the rest, and bytes that are not UTF-8, which count as U+FFFD here. All
// functions return INVALID_ARGUMENT with the reason if `json` is not an object,
// if one of its objects has a key twice (simdjson takes the first, Python the
// last), or if what it says of its media would be passed over: bounds or a size
// of a part of an image, which qwen-vl-utils reads there (`max_pixels`,
// `resized_height`, …), and next to the turns the bounds of a video or a clip
// of audio (`start`, …), if there is one. Turns are `conversations`, `messages`
// or `conversation`, a list or the text of one in JSON; of a preference pair
// (pair_json.h) the turns of both answers, which name the same images. Other
// errors then: as ReadPair; videos or audio.

// INVALID_ARGUMENT also if the object mentions a video: a key `video` or
// `videos` (null is none, and so is an empty list `videos`), the mark `<video>`
// in a turn, or a part of type `video` or `video_url`.
absl::Status CheckConversation(absl::string_view json);

// The media of the marks `<image>`, `<video>` and `<audio>` in a text, in
// order: "image", "video" or "audio".
std::vector<absl::string_view> FindMarks(absl::string_view text);

// The place of a medium in the turns: a part, or a mark in a text.
struct MediaPlace {
  absl::string_view medium;  // "image", "video" or "audio"
  std::string path;          // that the part names; ""
};

// All of them, in order.
absl::StatusOr<std::vector<MediaPlace>> ReadMediaPlaces(absl::string_view json);

// Whether the number by which a part of a turn names its image is its place
// among the images of the turns, from 0: parts take images in order. Errors: a
// data fault. Pure.
absl::Status CheckImageIndex(double index, size_t place);

// The paths in the places of `medium`, in order. `or_images`: a mark of an
// image is one of `medium`, too. Pure.
std::vector<absl::string_view> GetPaths(absl::string_view medium,
                                        const std::vector<MediaPlace>& places,
                                        bool or_images = false);

// Compares `paths`, which GetPaths returned, with the names of the media in
// these places, where both are known. How many there are is compared with the
// text later. `of` says where a name is from, as " of column `a`". "": members
// of a tar file, which may have other names than its parts: only a part that
// names another of them is refused. Errors: INVALID_ARGUMENT. Pure.
absl::Status CheckNames(
    absl::string_view medium, const std::vector<absl::string_view>& paths,
    const std::vector<std::optional<absl::string_view>>& names,
    absl::string_view of);

// The parts of type video, in order; parts of a sample whose videos are members
// of a tar file need no path. Other keys that qwen-vl-utils reads there
// (`nframes`, `max_pixels`, …) are refused by name.
absl::StatusOr<std::vector<NamedMedium>> ReadVideoParts(absl::string_view json);
// Likewise the parts of type audio.
absl::StatusOr<std::vector<NamedMedium>> ReadAudioParts(absl::string_view json);

// A sample of a jsonl source.
struct JsonSample {
  // kPackedJson if the object has `tokens`; kPlain if it has no turns, and is a
  // document (document_json.h); else kConversation.
  RawSample::TextFormat text_format = RawSample::TextFormat::kConversation;
  std::string document = {};  // of kPlain
  // By kind, in order. Each path passes CheckDataPath. URLs and members of zip
  // archives are refused by their kind (data_fault.h).
  //
  // Images, at most kMaxImages: from a document's places; or from `image` or
  // `images`, each a string, a list of strings, null or absent, which may not
  // name others than parts do in their places (ReadMediaPlaces), or than each
  // other; otherwise from the parts of `messages`, as
  // {"type": "image", "image": PATH}, or `path` for the second key, or {"type":
  // "image_url", "image_url": {"url": PATH}}.
  //
  // Videos: from `video`, a string or the list of its frames, or its plural, a
  // string or a list of either; otherwise from the parts, as {"type": "video",
  // "video": PATH}, or `path` for the second key, with a list of paths for
  // frames, or {"type": "video_url", "video_url": {"url": PATH}}. A sample
  // without a video has no mark `<video>`.
  //
  // Audio: from `audio` or `audios`, a string or a list of strings, or from the
  // parts, as {"type": "audio", "audio": PATH}, or `audio_url` or `path` for
  // the second key, with `start` and `end`.
  PerMedium<std::vector<NamedMedium>> media;

  MediaCounts counts() const;
  // The paths of all files, or of those of a kind: of frames, or of the medium.
  std::vector<std::string> paths() const;
  std::vector<std::string> paths(MediumKind kind) const;
};

// Errors: a data fault, also of a document that is not UTF-8, whatever
// model.on_invalid_utf8 says: JSON cannot hold it.
absl::StatusOr<JsonSample> ParseJsonSample(absl::string_view json);

// The same of JSON as Python may write it (python_json.h), which `json` then
// has as JSON.
absl::StatusOr<JsonSample> ReadJsonSample(std::string* json);

// INVALID_ARGUMENT if an object in `json`, which is JSON of any kind, has a key
// twice, naming the key; also if it is no JSON.
absl::Status CheckKeysOnce(absl::string_view json);
// The same of JSON that is parsed.
absl::Status CheckKeysOnce(const simdjson::dom::object& root);

// INVALID_ARGUMENT if the text holds the mark `<video>`.
absl::Status CheckNoVideoMark(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_JSONL_CONVERSATION_JSON_H_
