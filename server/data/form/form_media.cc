#include "server/data/form/form_media.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/data/form/form_record.h"
#include "server/data/form/unread.h"
#include "server/data/jsonl/document_json.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

// The bytes of base64 or of a `data:` address.
std::optional<std::string> Decode(absl::string_view text) {
  if (absl::ConsumePrefix(&text, "data:")) {
    const size_t comma = text.find(',');
    if (comma == text.npos ||
        !absl::EndsWith(text.substr(0, comma), ";base64")) {
      return std::nullopt;
    }
    text.remove_prefix(comma + 1);
  }
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes) &&
      !absl::WebSafeBase64Unescape(text, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

CookedSample::Video OneMedium(CookedSample::Medium medium) {
  CookedSample::Video one;
  one.parts.push_back(std::move(medium));
  return one;
}

// Pictures under a key of videos are the frames of one.
bool AreFrames(const array& list) {
  return list.size() > 0 &&
         std::all_of(list.begin(), list.end(), [](const element& item) {
           std::string_view text;
           if (item.get(text) != SUCCESS) return false;
           const std::string lower = absl::AsciiStrToLower(View(text));
           return absl::EndsWith(lower, ".jpg") ||
                  absl::EndsWith(lower, ".jpeg") ||
                  absl::EndsWith(lower, ".png") ||
                  absl::EndsWith(lower, ".webp") ||
                  absl::EndsWith(lower, ".bmp");
         });
}

absl::Status AddFrames(const array& list, std::vector<FormMedium>* found) {
  CookedSample::Video video;
  video.is_list = true;
  for (const element item : list) {
    video.parts.push_back(std::string(item.get_string().value_unsafe()));
  }
  found->push_back({std::move(video)});
  return absl::OkStatus();
}

}  // namespace

absl::Status FormMedia::AddMedia(absl::string_view kind, const element& value,
                                 std::vector<FormMedium>* found) {
  std::string_view text;
  array list;
  object map;
  if (value.is_null()) return absl::OkStatus();
  if (value.get(text) == SUCCESS) {
    if (text.empty()) return absl::OkStatus();
    BALLAST_ASSIGN_OR_RETURN(CookedSample::Medium medium,
                             TextMedium(kind, View(text)));
    found->push_back({OneMedium(std::move(medium))});
    return absl::OkStatus();
  }
  if (value.get(list) == SUCCESS) {
    if (kind == "videos" && AreFrames(list)) return AddFrames(list, found);
    for (const element item : list) {
      BALLAST_RETURN_IF_ERROR(AddMedia(kind, item, found));
    }
    return absl::OkStatus();
  }
  if (value.get(map) != SUCCESS) {
    return DataFaultError(absl::StrCat("found ", KindOf(value), " as ", kind,
                                       "; wanted bytes, a path or base64"));
  }
  uint64_t number;
  if (map.at_key(kFormMedia).get(number) == SUCCESS) {
    found->push_back({OneMedium(static_cast<uint32_t>(number))});
    return absl::OkStatus();
  }
  for (const char* name : {"start", "end", "video_start", "video_end", "fps",
                           "nframes", "bbox", "crop", "min_pixels",
                           "max_pixels", "resized_height", "resized_width"}) {
    element inner;
    if (map.at_key(name).get(inner) != SUCCESS || IsEmptyValue(inner)) continue;
    return DataFaultError(absl::StrCat(
        "`", name, "` beside a medium of ", kind,
        " is not read by a form; take the format's own form or a recipe, or "
        "name its path alone, as `form.",
        kind, ": KEY[].path`"));
  }
  // Bytes come first: `path` beside them is their name.
  for (const char* name :
       {"bytes", "data", "base64", "image", "video", "audio", "path",
        "image_url", "url", "image_path", "file_name", "filename", "file"}) {
    element inner;
    if (map.at_key(name).get(inner) == SUCCESS && !IsEmptyValue(inner) &&
        !inner.is_number()) {
      return AddMedia(kind, inner, found);
    }
  }
  if (map.size() == 0) return absl::OkStatus();
  // MiniCPM's images by their marks.
  std::vector<FormMedium> marked;
  for (const auto& [mark, inner] : map) {
    if (inner.is_null() || IsEmptyValue(inner)) continue;
    if (mark.empty() || mark[0] != '<' || !inner.is_string()) {
      return DataFaultError(absl::StrCat(
          "found a struct of `", Printable(View(mark)), "` as ", kind,
          "; wanted `bytes`, `path`, `image` or `url`, "
          "or marks such as `<image_00>` with paths"));
    }
    const size_t before = marked.size();
    BALLAST_RETURN_IF_ERROR(AddMedia(kind, inner, &marked));
    for (size_t i = before; i < marked.size(); ++i) {
      marked[i].mark = std::string(mark);
    }
  }
  found->insert(found->end(), marked.begin(), marked.end());
  return absl::OkStatus();
}

absl::StatusOr<CookedSample::Medium> FormMedia::TextMedium(
    absl::string_view kind, absl::string_view text) {
  if (!LooksLikeMedia(text)) return CookedSample::Medium(std::string(text));
  std::optional<std::string> bytes = Decode(text);
  if (!bytes.has_value()) {
    return DataFaultError(absl::StrCat(
        kind, " is a text that is no base64: ", Printable(text.substr(0, 40))));
  }
  media_bytes_ += bytes->size();
  if (media_bytes_ > kMaxSampleBytes) {
    return DataFaultError(
        absl::StrCat("over ", kMaxSampleBytes, " bytes in all"));
  }
  bytes_.push_back(*std::move(bytes));
  return CookedSample::Medium(
      static_cast<uint32_t>(parts_ + bytes_.size() - 1));
}

}  // namespace ballast
