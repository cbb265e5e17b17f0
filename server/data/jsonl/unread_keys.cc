#include "server/data/jsonl/unread_keys.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/data/jsonl/document_json.h"
#include "server/data/jsonl/media_root.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

template <typename List>
bool IsAmong(absl::string_view word, const List& list) {
  return std::count(std::begin(list), std::end(list), word) > 0;
}

// The words of `imageUrl`, `image_url` and `IMAGE-URL`, in lower case.
std::vector<std::string> WordsOf(absl::string_view name) {
  std::vector<std::string> words(1);
  bool was_lower = false;
  for (const char c : name) {
    const bool is_upper = absl::ascii_isupper(c);
    if (!absl::ascii_isalpha(c) || (is_upper && was_lower)) {
      if (!words.back().empty()) words.emplace_back();
    }
    if (absl::ascii_isalpha(c)) words.back() += absl::ascii_tolower(c);
    was_lower = absl::ascii_islower(c);
  }
  return words;
}

constexpr absl::string_view kMediaWords[] = {
    "image", "images", "img",    "imgs",  "picture", "pictures", "pic",
    "pics",  "photo",  "photos", "jpg",   "jpeg",    "png",      "webp",
    "gif",   "pixel",  "pixels", "video", "videos",  "audio",    "audios"};

// Words of facts about media: their values are no media.
constexpr absl::string_view kFactWords[] = {"id",
                                            "ids",
                                            "num",
                                            "number",
                                            "count",
                                            "counts",
                                            "width",
                                            "height",
                                            "size",
                                            "sizes",
                                            "caption",
                                            "captions",
                                            "text",
                                            "texts",
                                            "description",
                                            "license",
                                            "hash",
                                            "phash",
                                            "md",
                                            "sha",
                                            "score",
                                            "scores",
                                            "index",
                                            "idx",
                                            "type",
                                            "format",
                                            "mode",
                                            "source",
                                            "dataset",
                                            "split",
                                            "label",
                                            "labels",
                                            "category",
                                            "title",
                                            "alt",
                                            "class",
                                            "classes",
                                            "tag",
                                            "tags",
                                            "info",
                                            "meta",
                                            "metadata",
                                            "duration",
                                            "fps",
                                            "similarity",
                                            "quality",
                                            "correspondence",
                                            "dependency",
                                            "rating",
                                            "ratings",
                                            "min",
                                            "max"};

constexpr absl::string_view kPictureWords[] = {
    "width", "height",    "phash",     "similarity", "faces", "face",
    "clip",  "aesthetic", "watermark", "pwatermark", "nsfw",  "punsafe"};

// The marks of ms-swift and others whose values stand beside the turns.
constexpr absl::string_view kValueMarks[] = {"<bbox>", "<ref-object>",
                                             "<region>"};
constexpr absl::string_view kValueKeys[] = {
    "objects",    "bbox",       "bboxes", "boxes",  "ref",
    "ref-object", "ref_object", "region", "regions"};

// Words of pictures that belong to another.
constexpr absl::string_view kMapWords[] = {"depth",  "mask",         "masks",
                                           "sketch", "segmentation", "heatmap",
                                           "normal", "thermal",      "frames"};

constexpr absl::string_view kTurnKeys[] = {"messages", "conversations",
                                           "conversation"};

// Texts, objects and lists of these; numbers are facts.
bool SaysSomething(const element& value) {
  std::string_view text;
  array list;
  object map;
  if (value.get(list) == SUCCESS) {
    return list.size() > 0 && SaysSomething(list.at(0).value_unsafe());
  }
  return (value.get(text) == SUCCESS && !text.empty()) ||
         (value.get(map) == SUCCESS && map.size() > 0);
}

// The first entry of a list of lists, as of pixels.
bool IsArray(const element& value) {
  array list, inner;
  return value.get(list) == SUCCESS && list.size() > 0 &&
         list.at(0).get(inner) == SUCCESS && inner.size() > 0;
}

// The text of a value, or of the first entry of a list.
absl::string_view FirstText(const element& value) {
  std::string_view text;
  array list;
  if (value.get(text) == SUCCESS) return View(text);
  if (value.get(list) == SUCCESS && list.size() > 0 &&
      list.at(0).get(text) == SUCCESS) {
    return View(text);
  }
  return "";
}

absl::Status CheckVerdicts(const object& root) {
  bool has_turns = false;
  for (const auto& [key, value] : root) {
    has_turns |= IsAmong(View(key), kTurnKeys);
  }
  for (const auto& [key, value] : root) {
    bool is_desired = true;
    if (!has_turns || !IsVerdict(View(key)) ||
        value.get(is_desired) != SUCCESS || is_desired) {
      continue;
    }
    return OfKind(
        DataFaultError(absl::StrCat(
            "`", View(key),
            ": false` marks the answer as undesired, and every "
            "label is learnt; leave the record out, give it `weight: 0` in its "
            "turn, or take a recipe (docs/recipes.md)")),
        "undesired answer");
  }
  return absl::OkStatus();
}

absl::Status CheckValueMarks(absl::string_view json, const object& root) {
  for (const absl::string_view mark : kValueMarks) {
    if (!absl::StrContains(json, mark)) continue;
    for (const auto& [key, value] : root) {
      if (!IsAmong(View(key), kValueKeys) ||
          (!SaysSomething(value) && !IsArray(value))) {
        continue;
      }
      return OfKind(
          DataFaultError(absl::StrCat(
              "the mark ", mark, " stands for a value of `", View(key),
              "`, which is not filled in: the mark itself would be learnt; "
              "write the values into the texts, as a recipe does "
              "(docs/recipes.md)")),
          "mark without its value");
    }
  }
  return absl::OkStatus();
}

// Keys of texts: what they hold is learnt, or known as something else.
bool IsTextKey(absl::string_view key) {
  constexpr absl::string_view kTexts[] = {
      "text",   "texts",    "text_list",         "prompt",
      "chosen", "rejected", "rejected_response", "rejected_messages",
      "system", "tools",    "documents"};
  return IsAmong(key, kTexts) || IsAmong(key, kTurnKeys);
}

absl::Status LostMedia(absl::string_view key, absl::string_view what) {
  return OfKind(
      DataFaultError(absl::StrCat(
          "key `", Printable(key), "` ", what,
          ", and is not read: the sample would be text alone; wanted `image`, "
          "`images`, `video` or `audio` with files below media_root, or no "
          "such "
          "key")),
      "media under a key that is not read");
}

absl::Status CheckLostMedia(const object& root) {
  bool describes_picture = false;
  // Pages of texts and images, which have facts of the images elsewhere.
  bool has_places = false;
  for (const auto& [key, value] : root) {
    describes_picture |= DescribesPicture(View(key)) && !value.is_null();
    has_places |= View(key) == "texts" || View(key) == "text_list";
  }
  for (const auto& [key, value] : root) {
    if (IsTextKey(View(key)) || (!SaysSomething(value) && !IsArray(value))) {
      continue;
    }
    const absl::string_view text = FirstText(value);
    if (NamesMedia(text)) {
      return LostMedia(View(key),
                       absl::StrCat("names a file, ", Printable(text)));
    }
    if (has_places) continue;
    if (IsMediaKey(View(key))) {
      return LostMedia(View(key), "seems to hold media or their addresses");
    }
    if (IsMediaAddress(text) ||
        (IsAddressKey(View(key)) && absl::StrContains(text, "://") &&
         describes_picture)) {
      return LostMedia(
          View(key),
          absl::StrCat("has the address of a picture, ", Printable(text),
                       ": download them, as by `img2dataset "
                       "--url_list FILE --input_format jsonl --url_col ",
                       View(key),
                       " --caption_col text --output_format webdataset "
                       "--output_folder FOLDER`, and read FOLDER"));
    }
  }
  return absl::OkStatus();
}

// Qwen-VL's images within its texts, `<img>a.jpg</img>`.
absl::Status CheckNamedInTexts(absl::string_view json) {
  constexpr absl::string_view kBegin = "<img>";
  constexpr absl::string_view kEnd = "<";
  for (size_t at = json.find(kBegin); at != json.npos;
       at = json.find(kBegin, at + 1)) {
    absl::string_view name = json.substr(at + kBegin.size());
    const size_t end = name.find(kEnd);
    name = name.substr(0, std::min(end, name.size()));
    if (end == name.npos || (!NamesMedia(name) && !IsMediaAddress(name))) {
      continue;
    }
    return OfKind(
        DataFaultError(absl::StrCat(
            "a text names an image, <img>", Printable(name),
            "</img>, whose name would be learnt as text; write `form: chat` "
            "into the source, which reads it")),
        "image named within a text");
  }
  return absl::OkStatus();
}

absl::Status CheckOtherMedia(const object& root,
                             const std::vector<absl::string_view>& paths) {
  constexpr absl::string_view kRead[] = {
      "image", "images", "video", "videos", "audio", "audios", "image_info"};
  for (const auto& [key, value] : root) {
    if (IsAmong(View(key), kRead) || IsTextKey(View(key)) ||
        !NamesOtherMedia(View(key), value, paths)) {
      continue;
    }
    return OfKind(
        DataFaultError(absl::StrCat(
            "key `", Printable(View(key)),
            "` names a file that is none of the "
            "sample's, ",
            Printable(FirstText(value)),
            ", and is not read; write `form: {name: chat, images: [image, ",
            Printable(View(key)),
            "]}` into the source to read it, or `form: "
            "{name: chat, ignore: ",
            Printable(View(key)), "}`")),
        "media under a key that is not read");
  }
  return absl::OkStatus();
}

// Whether the text may hold a mark of a value, or a verdict. JSON may spell any
// letter otherwise.
bool MayHaveOthers(absl::string_view json) {
  const auto holds = [json](absl::string_view text) {
    return absl::StrContains(json, text);
  };
  return holds("\\u00") || holds("<img>") || holds("\"label\"") ||
         holds("\"kto_tag\"") ||
         std::any_of(std::begin(kValueMarks), std::end(kValueMarks), holds);
}

}  // namespace

bool IsMediaKey(absl::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  const auto is_among = [](const auto& list) {
    return [&list](const std::string& word) { return IsAmong(word, list); };
  };
  return std::any_of(words.begin(), words.end(), is_among(kMediaWords)) &&
         std::none_of(words.begin(), words.end(), is_among(kFactWords));
}

bool DescribesPicture(absl::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return IsAmong(word, kPictureWords);
  });
}

bool IsAddressKey(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return lower == "url" || lower == "urls" || lower == "uri" || lower == "link";
}

bool IsPictureId(absl::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  constexpr absl::string_view kPictures[] = {"image", "img", "picture", "photo",
                                             "coco"};
  return words.size() == 2 && words[1] == "id" && IsAmong(words[0], kPictures);
}

bool IsMediaAddress(absl::string_view address) {
  const size_t begin = address.find("://");
  if (begin == address.npos) return false;
  const absl::string_view path = address.substr(begin + 3);
  if (path.find_first_of(" \n") != path.npos) return false;
  return NamesMedia(path.substr(0, path.find_first_of("?#")));
}

bool IsMapKey(absl::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return IsAmong(word, kMapWords);
  });
}

bool NamesOtherMedia(absl::string_view key, const element& value,
                     const std::vector<absl::string_view>& paths) {
  std::string_view text;
  array list;
  if (paths.empty()) return false;
  if (value.get(list) == SUCCESS) {
    return std::any_of(list.begin(), list.end(), [&](const element& item) {
      return NamesOtherMedia(key, item, paths);
    });
  }
  if (value.get(text) != SUCCESS || !NamesMedia(View(text))) return false;
  return (IsMapKey(key) || IsMediaKey(key)) &&
         std::none_of(paths.begin(), paths.end(),
                      [&text](absl::string_view path) {
                        return IsSameFile(path, View(text));
                      });
}

bool IsVerdict(absl::string_view name) {
  return name == "label" || name == "kto_tag";
}

absl::Status CheckUnreadKeys(absl::string_view json, bool has_media) {
  // Most records with media have none of these, and are not parsed for it.
  if (has_media && !MayHaveOthers(json)) return absl::OkStatus();
  simdjson::dom::parser parser;
  object root;
  const std::string text = ReplaceInvalidUtf8(json);
  // The reader of the text reports its faults.
  if (parser.parse(text.data(), text.size()).get(root) != SUCCESS) {
    return absl::OkStatus();
  }
  return CheckUnreadKeys(json, root, has_media, {});
}

absl::Status CheckUnreadKeys(absl::string_view json, const object& root,
                             bool has_media,
                             const std::vector<absl::string_view>& paths) {
  if (MayHaveOthers(json)) {
    BALLAST_RETURN_IF_ERROR(CheckNamedInTexts(json));
    BALLAST_RETURN_IF_ERROR(CheckVerdicts(root));
    BALLAST_RETURN_IF_ERROR(CheckValueMarks(json, root));
  }
  return has_media ? CheckOtherMedia(root, paths) : CheckLostMedia(root);
}

}  // namespace ballast
