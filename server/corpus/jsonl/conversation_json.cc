#include "server/corpus/jsonl/conversation_json.h"

#include <utility>

#include <simdjson.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/corpus/bad_kind.h"
#include "server/corpus/data_path.h"
#include "server/corpus/limits.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

// Refuses what names an image somewhere else than in a file of its own.
absl::Status CheckIsOnDisk(absl::string_view path) {
  const auto refused = [path](const char* kind, absl::string_view reason) {
    return OfKind(absl::InvalidArgumentError(
                      absl::StrCat("image \"", Printable(path), "\" ", reason)),
                  kind);
  };
  if (absl::StartsWith(path, "data:")) {
    return refused(kImageIsUrl,
                   "is a data URL; images are read from files: write it to one "
                   "below media_root and name its path");
  }
  if (absl::StrContains(path, "://")) {
    return refused(kImageIsUrl,
                   "is a URL; images are read from files: download it below "
                   "media_root and name its path");
  }
  if (absl::EndsWith(path, ".zip") || absl::StrContains(path, ".zip/") ||
      absl::StrContains(path, ".zip@")) {
    return refused(kImageInZip,
                   "is in a zip archive, which is not read: unpack it below "
                   "media_root and name the image's path");
  }
  return absl::OkStatus();
}

absl::Status AddPath(absl::string_view path, std::vector<std::string>* paths) {
  if (paths->size() == kMaxImages) {
    return absl::InvalidArgumentError(
        absl::StrCat("over ", kMaxImages, " images"));
  }
  BALLAST_RETURN_IF_ERROR(CheckIsOnDisk(path));
  BALLAST_RETURN_IF_ERROR(CheckDataPath(path));
  paths->emplace_back(path);
  return absl::OkStatus();
}

// The image path that a part of a turn names, if any.
absl::Status ReadPart(const element& part, std::vector<std::string>* paths) {
  std::string_view type;
  if (part["type"].get(type) != SUCCESS) return absl::OkStatus();
  if (type == "video" || type == "video_url") {
    return absl::InvalidArgumentError("video is not supported: part of type " +
                                      std::string(type));
  }
  std::string_view path;
  if (type == "image" && part["image"].get(path) == SUCCESS) {
    return AddPath(View(path), paths);
  }
  if (type == "image_url" && (part["image_url"]["url"].get(path) == SUCCESS ||
                              part["image_url"].get(path) == SUCCESS)) {
    return AddPath(View(path), paths);
  }
  return absl::OkStatus();
}

// Adds the paths that parts name. Malformed turns are left to the text builder.
absl::Status ReadTurns(const object& root, std::vector<std::string>* paths) {
  array turns;
  if (root.at_key("conversations").get(turns) != SUCCESS &&
      root.at_key("messages").get(turns) != SUCCESS) {
    return absl::OkStatus();
  }
  for (const element turn : turns) {
    std::string_view said;
    array parts;
    if (turn["value"].get(said) == SUCCESS ||
        turn["content"].get(said) == SUCCESS) {
      BALLAST_RETURN_IF_ERROR(CheckNoVideoMark(View(said)));
    } else if (turn["content"].get(parts) == SUCCESS) {
      for (const element part : parts) {
        BALLAST_RETURN_IF_ERROR(ReadPart(part, paths));
      }
    }
  }
  return absl::OkStatus();
}

// The object lives as long as the parser.
absl::StatusOr<object> ParseObject(absl::string_view json,
                                   simdjson::dom::parser& parser) {
  element root;
  auto error = parser.parse(json.data(), json.size()).get(root);
  if (error == simdjson::UTF8_ERROR) {
    // The parser keeps a copy of it.
    const std::string replaced = ReplaceInvalidUtf8(json);
    error = parser.parse(replaced.data(), replaced.size()).get(root);
  }
  if (error != SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrCat("not JSON: ", simdjson::error_message(error)));
  }
  object result;
  if (root.get(result) != SUCCESS) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  element video;
  if (result.at_key("video").get(video) == SUCCESS && !video.is_null()) {
    return absl::InvalidArgumentError("video is not supported: key `video`");
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
  return absl::InvalidArgumentError(
      absl::StrCat("`", key, "` is neither a string nor a list of strings"));
}

}  // namespace

absl::Status CheckConversation(absl::string_view json) {
  simdjson::dom::parser parser;
  BALLAST_ASSIGN_OR_RETURN(const object root, ParseObject(json, parser));
  std::vector<std::string> unused;
  return ReadTurns(root, &unused);
}

absl::StatusOr<JsonSample> ParseJsonSample(absl::string_view json) {
  simdjson::dom::parser parser;
  BALLAST_ASSIGN_OR_RETURN(const object root, ParseObject(json, parser));
  JsonSample sample;
  element tokens;
  if (root.at_key("tokens").get(tokens) == SUCCESS) {
    sample.text_format = RawSample::TextFormat::kPackedJson;
  }
  std::vector<std::string> of_parts;
  BALLAST_RETURN_IF_ERROR(ReadTurns(root, &of_parts));
  for (const char* key : {"image", "images"}) {
    BALLAST_ASSIGN_OR_RETURN(const bool found,
                             ReadImages(root, key, &sample.images));
    if (found) return sample;
  }
  sample.images = std::move(of_parts);
  return sample;
}

absl::Status CheckNoVideoMark(absl::string_view text) {
  if (!absl::StrContains(text, "<video>")) return absl::OkStatus();
  return absl::InvalidArgumentError("video is not supported: mark `<video>`");
}

}  // namespace ballast
