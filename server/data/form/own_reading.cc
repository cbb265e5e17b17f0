#include "server/data/form/own_reading.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/data/form/form_record.h"
#include "server/data/form/unread.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/document_json.h"
#include "server/data/jsonl/media_root.h"

namespace ballast {

using ::simdjson::SUCCESS;
using ::simdjson::dom::object;

absl::Status CheckOwnReading(const RecipeRecord& record) {
  constexpr absl::string_view kOwn[] = {
      "image",        "images",    "video",  "videos",    "audio",
      "audios",       "text",      "texts",  "messages",  "conversations",
      "conversation", "text_list", "prompt", "system",    "tools",
      "documents",    "functions", "tokens", "image_info"};
  const bool is_members = record.kind == RecipeRecord::Kind::kMembers;
  const std::string json = is_members ? MembersJson(record) : record.text;
  simdjson::dom::parser parser;
  object root;
  if (parser.parse(json).get(root) != SUCCESS) return absl::OkStatus();
  std::vector<std::string> files;
  MediaOfSample media;
  if (record.kind == RecipeRecord::Kind::kLine) {
    if (const auto sample = ParseJsonSample(record.text); sample.ok()) {
      files = sample->paths();
    }
  }
  media.any = !record.parts.empty() || !files.empty();
  media.paths.assign(files.begin(), files.end());
  std::string_view text;
  if (root.at_key("text").get(text) == SUCCESS) {
    BALLAST_RETURN_IF_ERROR(CheckNoRecordWithin("text", View(text)));
  }
  return CheckEveryKey(root, media, [&](const std::string& path) {
    absl::string_view key = path;
    if (is_members && key == "json") return KeyUse::kWithin;
    // Members that are media and not read are bad by their names.
    if (is_members && !absl::ConsumePrefix(&key, "json.")) return KeyUse::kRead;
    return std::count(std::begin(kOwn), std::end(kOwn), key) > 0 ||
                   absl::StartsWith(key, "chosen") ||
                   absl::StartsWith(key, "rejected")
               ? KeyUse::kRead
               : KeyUse::kUnread;
  });
}

}  // namespace ballast
