#include "server/data/jsonl/conversation_json.h"

#include <algorithm>
#include <utility>

#include <simdjson.h>

#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/data/jsonl/document_json.h"
#include "server/data/jsonl/media_root.h"
#include "server/data/jsonl/pair_json.h"
#include "server/data/jsonl/python_json.h"
#include "server/data/jsonl/unread_keys.h"
#include "server/data/jsonl/video_json.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

absl::Status AddPath(absl::string_view path, std::vector<std::string>* paths) {
  if (paths->size() == kMaxImages) {
    return DataFaultError(absl::StrCat("over ", kMaxImages, " images"));
  }
  BALLAST_RETURN_IF_ERROR(CheckMediaPath("image", path));
  paths->emplace_back(path);
  return absl::OkStatus();
}

absl::Status AddImage(absl::string_view path,
                      std::vector<NamedMedium>* images) {
  if (images->size() == kMaxImages) {
    return DataFaultError(absl::StrCat("over ", kMaxImages, " images"));
  }
  BALLAST_RETURN_IF_ERROR(CheckMediaPath("image", path));
  images->push_back({std::string(path)});
  return absl::OkStatus();
}

// What the turns of an object mention.
struct Mentioned {
  PerMedium<std::vector<NamedMedium>> media;
  std::vector<MediaPlace> places;  // in order
  bool has_video_mark = false;
  bool is_pair = false;  // a preference pair
};

void AddMarkPlaces(absl::string_view text, Mentioned* mentioned) {
  for (const absl::string_view medium : FindMarks(text)) {
    mentioned->places.push_back({medium, ""});
    mentioned->has_video_mark |= medium == "video";
  }
}

// qwen-vl-utils resizes an image as its part says.
absl::Status CheckImagePart(const element& part) {
  for (const char* name :
       {"min_pixels", "max_pixels", "resized_height", "resized_width"}) {
    element value;
    if (part[name].get(value) != SUCCESS || value.is_null()) continue;
    return DataFaultError(absl::StrCat(
        "`", name,
        "` of one image is not supported; set min_pixels and max_pixels for "
        "all in model, or remove the key"));
  }
  return absl::OkStatus();
}

// The path that a part of a turn names, if any.
absl::Status ReadPart(const element& part, Mentioned* mentioned) {
  std::string_view type;
  if (part["type"].get(type) != SUCCESS) return absl::OkStatus();
  if (type == "video" || type == "video_url") {
    BALLAST_ASSIGN_OR_RETURN(NamedMedium video, ReadVideoPart(part));
    mentioned->places.push_back({"video", video.path});
    mentioned->media[MediumKind::kVideo].push_back(std::move(video));
    return absl::OkStatus();
  }
  if (type == "audio") {
    BALLAST_ASSIGN_OR_RETURN(NamedMedium clip, ReadAudioPart(part));
    mentioned->places.push_back({"audio", clip.path});
    mentioned->media[MediumKind::kAudio].push_back(std::move(clip));
    return absl::OkStatus();
  }
  if (type == "image" || type == "image_url") {
    BALLAST_RETURN_IF_ERROR(CheckImagePart(part));
    double index;
    if (part["index"].get(index) == SUCCESS) {
      BALLAST_RETURN_IF_ERROR(CheckImageIndex(
          index, std::count_if(
                     mentioned->places.begin(), mentioned->places.end(),
                     [](const auto& each) { return each.medium == "image"; })));
    }
  }
  std::string_view path;
  if ((type == "image" && (part["image"].get(path) == SUCCESS ||
                           part["path"].get(path) == SUCCESS)) ||
      (type == "image_url" && (part["image_url"]["url"].get(path) == SUCCESS ||
                               part["image_url"].get(path) == SUCCESS))) {
    mentioned->places.push_back({"image", std::string(path)});
    return AddImage(View(path), &mentioned->media[MediumKind::kImage]);
  }
  if (type == "image" || type == "image_url") {
    mentioned->places.push_back({"image", ""});
  }
  if (type == "text" && part["text"].get(path) == SUCCESS) {
    AddMarkPlaces(View(path), mentioned);
  }
  return absl::OkStatus();
}

constexpr const char* kTurns[] = {"conversations", "messages", "conversation"};

// The list of turns, which may be the text of one; malformed ones are left to
// the text builder. It lives as long as the parser.
std::optional<array> FindTurns(const object& root,
                               simdjson::dom::parser& parser) {
  for (const char* key : kTurns) {
    array turns;
    if (root.at_key(key).get(turns) == SUCCESS) return turns;
    std::string_view text;
    if (root.at_key(key).get(text) == SUCCESS &&
        parser.parse(text.data(), text.size()).get(turns) == SUCCESS) {
      return turns;
    }
  }
  return std::nullopt;
}

absl::Status AddMentioned(const array& turns, Mentioned* mentioned) {
  for (const element turn : turns) {
    std::string_view said;
    array parts;
    if (turn["value"].get(said) == SUCCESS ||
        turn["content"].get(said) == SUCCESS) {
      AddMarkPlaces(View(said), mentioned);
    } else if (turn["content"].get(parts) == SUCCESS) {
      for (const element part : parts) {
        BALLAST_RETURN_IF_ERROR(ReadPart(part, mentioned));
      }
    }
  }
  return absl::OkStatus();
}

// What the turns of a preference pair mention: both the same, since images are
// in the prompt alone.
absl::StatusOr<Mentioned> ReadPairTurns(const PairJson& pair) {
  Mentioned of[2];
  const std::string* const texts[] = {&pair.chosen, &pair.rejected};
  for (int i = 0; i < 2; ++i) {
    simdjson::dom::parser parser;
    array turns;
    if (parser.parse(texts[i]->data(), texts[i]->size()).get(turns) !=
        SUCCESS) {
      return absl::InternalError("a preference pair is no JSON");
    }
    BALLAST_RETURN_IF_ERROR(AddMentioned(turns, &of[i]));
    if (of[i].has_video_mark || !of[i].media[MediumKind::kVideo].empty() ||
        !of[i].media[MediumKind::kAudio].empty()) {
      return DataFaultError(
          "a video or audio in a preference pair, which takes images alone");
    }
  }
  of[0].is_pair = true;
  return std::move(of[0]);
}

// Refuses the bounds of a video or clip of audio next to the turns of a sample
// that has some. A rate there describes the file in many sets.
absl::Status CheckBesideTurns(const object& root) {
  for (const char* key : {"video_start", "video_end", "audio_start",
                          "audio_end", "start", "end"}) {
    element value;
    if (root.at_key(key).get(value) != SUCCESS || value.is_null()) continue;
    return DataFaultError(absl::StrCat(
        "`", key,
        "` beside the turns is not read; name the video or clip of audio in a "
        "part, with its `start` and `end`"));
  }
  return absl::OkStatus();
}

// Reads the media that the turns mention.
absl::StatusOr<Mentioned> ReadTurns(const object& root) {
  Mentioned mentioned;
  BALLAST_ASSIGN_OR_RETURN(const std::optional<PairJson> pair,
                           ReadPair(root, /*images=*/0));
  if (pair.has_value()) return ReadPairTurns(*pair);
  simdjson::dom::parser parser;
  const std::optional<array> turns = FindTurns(root, parser);
  if (turns.has_value()) {
    BALLAST_RETURN_IF_ERROR(AddMentioned(*turns, &mentioned));
  }
  return mentioned;
}

// Walks all objects, which are at most as deep as simdjson allows (1024).
absl::Status CheckObject(const object& map);

absl::Status CheckObjects(const element& value) {
  if (array list; value.get(list) == SUCCESS) {
    for (const element item : list) {
      BALLAST_RETURN_IF_ERROR(CheckObjects(item));
    }
    return absl::OkStatus();
  }
  object map;
  return value.get(map) == SUCCESS ? CheckObject(map) : absl::OkStatus();
}

absl::Status CheckObject(const object& map) {
  // Compares few keys with each other, and remembers many.
  constexpr size_t kFew = 16;
  absl::InlinedVector<std::string_view, kFew> few;
  absl::flat_hash_set<std::string_view> many;
  for (const auto& [key, item] : map) {
    bool is_new;
    if (few.size() < kFew) {
      is_new = std::find(few.begin(), few.end(), key) == few.end();
      few.push_back(key);
    } else {
      if (many.empty()) many.insert(few.begin(), few.end());
      is_new = many.insert(key).second;
    }
    if (!is_new) {
      return DataFaultError(absl::StrCat(
          "key \"", Printable(View(key)),
          "\" twice in one object: programs differ in which of the two they "
          "take; leave one"));
    }
    BALLAST_RETURN_IF_ERROR(CheckObjects(item));
  }
  return absl::OkStatus();
}

// The value lives as long as the parser.
absl::StatusOr<element> Parse(absl::string_view json,
                              simdjson::dom::parser& parser) {
  element root;
  auto error = parser.parse(json.data(), json.size()).get(root);
  if (error == simdjson::UTF8_ERROR) {
    // The parser keeps a copy of it.
    const std::string replaced = ReplaceInvalidUtf8(json);
    error = parser.parse(replaced.data(), replaced.size()).get(root);
  }
  if (error != SUCCESS) {
    return DataFaultError(
        absl::StrCat("not JSON: ", simdjson::error_message(error)));
  }
  BALLAST_RETURN_IF_ERROR(CheckObjects(root));
  return root;
}

absl::StatusOr<object> ParseObject(absl::string_view json,
                                   simdjson::dom::parser& parser) {
  BALLAST_ASSIGN_OR_RETURN(const element root, Parse(json, parser));
  object result;
  if (root.get(result) != SUCCESS) {
    return DataFaultError("not a JSON object");
  }
  return result;
}

// Adds the paths of `key`. Returns whether the key exists and is not null.
absl::StatusOr<bool> ReadImages(const object& root, const char* key,
                                std::vector<std::string>* paths) {
  element value;
  if (root.at_key(key).get(value) != SUCCESS || value.is_null()) return false;
  std::string_view path;
  if (value.get(path) == SUCCESS) {
    BALLAST_RETURN_IF_ERROR(AddPath(View(path), paths));
    return true;
  }
  array list;
  bool is_list = value.get(list) == SUCCESS;
  if (is_list) {
    for (const element item : list) {
      is_list = item.get(path) == SUCCESS;
      if (!is_list) break;
      BALLAST_RETURN_IF_ERROR(AddPath(View(path), paths));
    }
  }
  if (is_list) return true;
  return DataFaultError(
      absl::StrCat("`", key, "` is neither a string nor a list of strings"));
}

// The paths of `image` and `images`; nullopt if there is neither.
absl::StatusOr<std::optional<std::vector<std::string>>> ReadImageKeys(
    const object& root) {
  std::optional<std::vector<std::string>> images;
  for (const char* key : {"image", "images"}) {
    std::vector<std::string> paths;
    BALLAST_ASSIGN_OR_RETURN(const bool found, ReadImages(root, key, &paths));
    if (!found) continue;
    if (images.has_value() && !images->empty() && !paths.empty() &&
        *images != paths) {
      return DataFaultError(
          "`image` and `images` name different images; wanted one of the two");
    }
    if (!images.has_value() || images->empty()) images = std::move(paths);
  }
  return images;
}

// `or_images`: a mark of an image is one of `medium`, too.
absl::Status CheckKeys(absl::string_view medium, const Mentioned& mentioned,
                       const std::vector<std::string>& keys,
                       bool or_images = false) {
  return CheckNames(medium, GetPaths(medium, mentioned.places, or_images),
                    {keys.begin(), keys.end()},
                    absl::StrCat(" of key `", medium, "` or `", medium, "s`"));
}

std::vector<std::string> PathsOf(const std::vector<NamedMedium>& videos) {
  std::vector<std::string> paths;
  for (const NamedMedium& video : videos) paths.push_back(video.path);
  return paths;
}

// The document that the object is; nullopt if it has turns or tokens.
absl::StatusOr<std::optional<JsonDocument>> FindDocument(
    const object& root, absl::string_view json) {
  for (const char* key : kTurns) {
    element turns;
    if (root.at_key(key).get(turns) == SUCCESS && !turns.is_null()) {
      return std::optional<JsonDocument>();
    }
  }
  BALLAST_ASSIGN_OR_RETURN(std::optional<JsonDocument> document,
                           ReadDocument(root));
  if (!document.has_value()) return document;
  if (const absl::Status status = CheckUtf8(json); !status.ok()) {
    return DataFaultError(absl::StrCat(status.message(),
                                       ", in a document, which JSON has in "
                                       "UTF-8 alone"));
  }
  return document;
}

absl::Status NoVideo(absl::string_view found) {
  return DataFaultError(absl::StrCat("video is not supported: ", found));
}

}  // namespace

absl::Status CheckKeysOnce(absl::string_view json) {
  simdjson::dom::parser parser;
  return Parse(json, parser).status();
}

absl::Status CheckKeysOnce(const object& root) { return CheckObject(root); }

absl::Status CheckConversation(absl::string_view json) {
  simdjson::dom::parser parser;
  BALLAST_ASSIGN_OR_RETURN(const object root, ParseObject(json, parser));
  for (const char* key : {"video", "videos"}) {
    element value;
    if (root.at_key(key).get(value) != SUCCESS || value.is_null()) continue;
    array list;  // an empty one is a sample without a video, in a set of both
    if (std::string_view(key) == "videos" && value.get(list) == SUCCESS &&
        list.size() == 0) {
      continue;
    }
    return NoVideo(absl::StrCat("key `", key, "`"));
  }
  BALLAST_ASSIGN_OR_RETURN(const Mentioned mentioned, ReadTurns(root));
  if (mentioned.has_video_mark) return NoVideo("mark `<video>`");
  if (!mentioned.media[MediumKind::kVideo].empty())
    return NoVideo("part of type video");
  return absl::OkStatus();
}

std::vector<absl::string_view> FindMarks(absl::string_view text) {
  std::vector<absl::string_view> media;
  for (size_t at = text.find('<'); at != text.npos;
       at = text.find('<', at + 1)) {
    for (const MediumKind kind : MediumKinds()) {
      if (!absl::StartsWith(text.substr(at), WordsOf(kind).mark)) continue;
      media.push_back(MediumName(kind));
    }
  }
  return media;
}

absl::StatusOr<std::vector<MediaPlace>> ReadMediaPlaces(
    absl::string_view json) {
  simdjson::dom::parser parser;
  BALLAST_ASSIGN_OR_RETURN(const object root, ParseObject(json, parser));
  BALLAST_ASSIGN_OR_RETURN(Mentioned mentioned, ReadTurns(root));
  return std::move(mentioned.places);
}

absl::Status CheckImageIndex(double index, size_t place) {
  if (index == place) return absl::OkStatus();
  return DataFaultError(absl::StrCat(
      "`index` of an image part is ", index, ", and the part is image ", place,
      " of the turns, from 0: parts take images in order; put the images into "
      "the order of the parts"));
}

std::vector<absl::string_view> GetPaths(absl::string_view medium,
                                        const std::vector<MediaPlace>& places,
                                        bool or_images) {
  std::vector<absl::string_view> paths;
  for (const MediaPlace& place : places) {
    if (place.medium == medium || (or_images && place.medium == "image")) {
      paths.push_back(place.path);
    }
  }
  return paths;
}

absl::Status CheckNames(
    absl::string_view medium, const std::vector<absl::string_view>& paths,
    const std::vector<std::optional<absl::string_view>>& names,
    absl::string_view of) {
  for (size_t i = 0; paths.size() == names.size() && i < paths.size(); ++i) {
    const auto is_named = [&](const std::optional<absl::string_view>& name) {
      return name.has_value() && IsSameFile(paths[i], *name);
    };
    if (paths[i].empty() || !names[i].has_value() || is_named(names[i]) ||
        (of.empty() && std::none_of(names.begin(), names.end(), is_named))) {
      continue;
    }
    return DataFaultError(absl::StrCat(
        "a part of type ", medium, " names ", Printable(paths[i]), " in place ",
        i + 1, ", and ", medium, " ", i + 1, of, " is ", Printable(*names[i]),
        "; wanted ",
        of.empty() ? "members numbered in the order of parts and marks"
                   : absl::StrCat("the ", medium,
                                  "s in the order of their parts and marks")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NamedMedium>> ReadVideoParts(
    absl::string_view json) {
  simdjson::dom::parser parser;
  BALLAST_ASSIGN_OR_RETURN(const object root, ParseObject(json, parser));
  BALLAST_RETURN_IF_ERROR(CheckBesideTurns(root));
  BALLAST_ASSIGN_OR_RETURN(Mentioned mentioned, ReadTurns(root));
  return std::move(mentioned.media[MediumKind::kVideo]);
}

absl::StatusOr<std::vector<NamedMedium>> ReadAudioParts(
    absl::string_view json) {
  simdjson::dom::parser parser;
  BALLAST_ASSIGN_OR_RETURN(const object root, ParseObject(json, parser));
  BALLAST_RETURN_IF_ERROR(CheckBesideTurns(root));
  BALLAST_ASSIGN_OR_RETURN(Mentioned mentioned, ReadTurns(root));
  return std::move(mentioned.media[MediumKind::kAudio]);
}

namespace {

// The media of a kind that travels as rows.
absl::Status ReadRows(MediumKind kind, const object& root, Mentioned* mentioned,
                      std::vector<NamedMedium>* media) {
  BALLAST_ASSIGN_OR_RETURN(const bool has_keys,
                           ReadRowsKeys(kind, root, media));
  if (has_keys) {
    BALLAST_RETURN_IF_ERROR(
        CheckKeys(MediumName(kind), *mentioned, PathsOf(*media)));
  }
  for (NamedMedium& part : mentioned->media[kind]) {
    if (!has_keys) {
      BALLAST_RETURN_IF_ERROR(AddRowsMedium(kind, std::move(part), media));
    } else if (part.start.has_value() || part.end.has_value()) {
      return DataFaultError(
          "a part of type audio has a clip beside a key `audio` or `audios`; "
          "name its path in the part, and leave out the key");
    }
  }
  return absl::OkStatus();
}

}  // namespace

MediaCounts JsonSample::counts() const {
  MediaCounts counts;
  for (const MediumKind kind : MediumKinds()) counts[kind] = media[kind].size();
  return counts;
}

std::vector<std::string> JsonSample::paths(MediumKind kind) const {
  std::vector<std::string> paths;
  for (const NamedMedium& medium : media[kind]) {
    if (!medium.path.empty()) paths.push_back(medium.path);
    paths.insert(paths.end(), medium.frames.begin(), medium.frames.end());
  }
  return paths;
}

std::vector<std::string> JsonSample::paths() const {
  std::vector<std::string> all;
  for (const MediumKind kind : MediumKinds()) {
    const std::vector<std::string> more = paths(kind);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

absl::StatusOr<JsonSample> ParseJsonSample(absl::string_view json) {
  simdjson::dom::parser parser;
  BALLAST_ASSIGN_OR_RETURN(const object root, ParseObject(json, parser));
  JsonSample sample;
  element tokens;
  BALLAST_ASSIGN_OR_RETURN(Mentioned mentioned, ReadTurns(root));
  std::optional<JsonDocument> document;
  if (mentioned.is_pair) {
    // Neither, whatever keys are next to its answers.
  } else if (root.at_key("tokens").get(tokens) == SUCCESS) {
    sample.text_format = RawSample::TextFormat::kPackedJson;
  } else {
    BALLAST_ASSIGN_OR_RETURN(document, FindDocument(root, json));
  }
  if (document.has_value()) {
    sample.text_format = RawSample::TextFormat::kPlain;
    sample.document = std::move(document->text);
    mentioned.has_video_mark = absl::StrContains(sample.document, "<video>");
  }
  std::vector<NamedMedium>& images = sample.media[MediumKind::kImage];
  if (document.has_value() && document->images.has_value()) {
    for (const std::string& path : *document->images) {
      BALLAST_RETURN_IF_ERROR(AddImage(path, &images));
    }
  } else {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> keys,
                             ReadImageKeys(root));
    if (keys.has_value()) {
      BALLAST_RETURN_IF_ERROR(CheckKeys("image", mentioned, *keys));
      for (const std::string& path : *keys) images.push_back({path});
    } else {
      images = std::move(mentioned.media[MediumKind::kImage]);
    }
  }
  for (const MediumKind kind : MediumKinds()) {
    if (!TravelsAsRows(kind)) continue;
    BALLAST_RETURN_IF_ERROR(
        ReadRows(kind, root, &mentioned, &sample.media[kind]));
  }
  std::vector<NamedMedium>& videos = sample.media[MediumKind::kVideo];
  BALLAST_ASSIGN_OR_RETURN(const bool has_videos, ReadVideoKeys(root, &videos));
  if (has_videos) {
    BALLAST_RETURN_IF_ERROR(CheckKeys("video", mentioned, PathsOf(videos),
                                      /*or_images=*/images.empty()));
  }
  for (NamedMedium& video : mentioned.media[MediumKind::kVideo]) {
    if (!has_videos) {
      BALLAST_RETURN_IF_ERROR(AddVideo(std::move(video), &videos));
    } else if (video.start.has_value() || video.end.has_value() ||
               video.fps > 0 || !video.frames.empty()) {
      return DataFaultError(
          "a part of type video has a clip, a rate or frames beside a key "
          "`video` or `videos`; name its path in the part, and leave out the "
          "key");
    }
  }
  if (!videos.empty() || !sample.media[MediumKind::kAudio].empty()) {
    BALLAST_RETURN_IF_ERROR(CheckBesideTurns(root));
  }
  if (videos.empty() && mentioned.has_video_mark) {
    return DataFaultError(
        "mark `<video>` in a sample without a video; name its file by a key "
        "`video`");
  }
  const std::vector<std::string> files = sample.paths();
  const std::vector<absl::string_view> paths(files.begin(), files.end());
  BALLAST_RETURN_IF_ERROR(
      CheckUnreadKeys(json, root, Total(sample.counts()) > 0, paths));
  return sample;
}

absl::StatusOr<JsonSample> ReadJsonSample(std::string* json) {
  absl::StatusOr<JsonSample> sample = ParseJsonSample(*json);
  if (sample.ok()) return sample;
  std::string plain = FromPythonJson(*json);
  if (plain == *json) return sample;
  *json = std::move(plain);
  return ParseJsonSample(*json);
}

absl::Status CheckNoVideoMark(absl::string_view text) {
  if (!absl::StrContains(text, "<video>")) return absl::OkStatus();
  return NoVideo("mark `<video>`");
}

}  // namespace ballast
