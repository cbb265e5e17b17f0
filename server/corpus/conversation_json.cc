#include "server/corpus/conversation_json.h"

#include <simdjson.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_path.h"
#include "server/corpus/limits.h"

namespace ballast {
namespace {

using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

// Turns that are not as they should be are left to the text builder.
absl::Status CheckTurns(const object& root) {
  array turns;
  if (root.at_key("conversations").get(turns) != simdjson::SUCCESS) {
    return absl::OkStatus();
  }
  for (const element turn : turns) {
    std::string_view value;
    if (turn.at_key("value").get(value) != simdjson::SUCCESS) continue;
    BALLAST_RETURN_IF_ERROR(CheckNoVideoMark(View(value)));
  }
  return absl::OkStatus();
}

// The object lives as long as the parser.
absl::StatusOr<object> Parse(absl::string_view json,
                             simdjson::dom::parser& parser) {
  element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root);
      error != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrCat("not JSON: ", simdjson::error_message(error)));
  }
  object result;
  if (root.get(result) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  element video;
  if (result.at_key("video").get(video) == simdjson::SUCCESS &&
      !video.is_null()) {
    return absl::InvalidArgumentError("video is not supported: key `video`");
  }
  BALLAST_RETURN_IF_ERROR(CheckTurns(result));
  return result;
}

absl::Status AddPath(element value, std::vector<std::string>& paths) {
  std::string_view path;
  if (value.get(path) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(
        "`image` is neither a string nor a list of strings");
  }
  if (paths.size() == kMaxImages) {
    return absl::InvalidArgumentError(
        absl::StrCat("over ", kMaxImages, " images"));
  }
  BALLAST_RETURN_IF_ERROR(CheckDataPath(View(path)));
  paths.emplace_back(path);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckConversation(absl::string_view json) {
  simdjson::dom::parser parser;
  return Parse(json, parser).status();
}

absl::StatusOr<std::vector<std::string>> ConversationImages(
    absl::string_view json) {
  simdjson::dom::parser parser;
  BALLAST_ASSIGN_OR_RETURN(const object root, Parse(json, parser));
  std::vector<std::string> paths;
  element image;
  if (root.at_key("image").get(image) != simdjson::SUCCESS || image.is_null()) {
    return paths;
  }
  array list;
  if (image.get(list) != simdjson::SUCCESS) {
    BALLAST_RETURN_IF_ERROR(AddPath(image, paths));
    return paths;
  }
  for (const element value : list) {
    BALLAST_RETURN_IF_ERROR(AddPath(value, paths));
  }
  return paths;
}

absl::Status CheckNoVideoMark(absl::string_view text) {
  if (!absl::StrContains(text, "<video>")) return absl::OkStatus();
  return absl::InvalidArgumentError("video is not supported: mark `<video>`");
}

}  // namespace ballast
