#include "server/data/form/unread.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <simdjson.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/jsonl/document_json.h"
#include "server/data/jsonl/media_root.h"
#include "server/data/jsonl/unread_keys.h"
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

constexpr absl::string_view kMarkValues[] = {
    "objects",    "bbox",   "bboxes",  "boxes", "ref", "ref-object", "refs",
    "ref_object", "region", "regions", "crop",  "roi", "crop_box"};
constexpr absl::string_view kVerdicts[] = {"label", "kto_tag", "is_desired",
                                           "desirable", "is_correct"};
constexpr absl::string_view kRejected[] = {
    "rejected", "rejected_response", "rejected_messages", "rejected_answer",
    "rejected_images"};
constexpr absl::string_view kChosen[] = {"chosen", "chosen_response",
                                         "chosen_messages", "chosen_answer"};
constexpr absl::string_view kBounds[] = {
    "video_start", "video_end", "audio_start", "audio_end", "start", "end"};
constexpr absl::string_view kWeights[] = {"weight", "weights", "loss_weight",
                                          "sample_weight", "loss"};
constexpr absl::string_view kMasks[] = {"mask", "loss_mask", "train_mask",
                                        "masks"};
// What an answer that is a letter or a number chooses from.
constexpr absl::string_view kOptions[] = {
    "choices",          "options",        "choice",     "candidates",
    "multiple_choices", "answer_choices", "choice_list"};

bool IsEmpty(const element& value) {
  std::string_view text;
  array list;
  object map;
  if (value.is_null()) return true;
  if (value.get(text) == SUCCESS) return text.empty();
  if (value.get(list) == SUCCESS) {
    return std::all_of(list.begin(), list.end(), IsEmpty);
  }
  if (value.get(map) == SUCCESS) {
    return std::all_of(map.begin(), map.end(),
                       [](const auto& entry) { return IsEmpty(entry.value); });
  }
  return false;
}

// Lists of lists of lists of numbers.
bool IsPixels(const element& value, int depth = 0) {
  array list;
  if (value.get(list) != SUCCESS) return depth >= 3 && value.is_number();
  return list.size() > 0 && IsPixels(list.at(0).value_unsafe(), depth + 1);
}

absl::string_view FirstText(const element& value) {
  std::string_view text;
  array list;
  if (value.get(text) == SUCCESS) return View(text);
  if (value.get(list) == SUCCESS && list.size() > 0) {
    return FirstText(list.at(0).value_unsafe());
  }
  return "";
}

// The texts of a list or struct, or one text.
void AddTexts(const element& value, std::vector<absl::string_view>* texts) {
  std::string_view text;
  array list;
  object map;
  if (value.get(text) == SUCCESS) texts->push_back(View(text));
  if (value.get(list) == SUCCESS) {
    for (const element item : list) AddTexts(item, texts);
  }
  if (value.get(map) == SUCCESS) {
    for (const auto& [key, inner] : map) AddTexts(inner, texts);
  }
}

// A short text without line feeds, as a path or an address is.
bool IsName(absl::string_view text) {
  return !text.empty() && text.size() < 4096 && !LooksLikeMedia(text) &&
         text.find('\n') == text.npos;
}

// A list of structs of a role and what it says.
bool HoldsTurns(const element& value) {
  array list;
  object turn;
  element inner;
  if (value.get(list) != SUCCESS || list.size() == 0 ||
      list.at(0).get(turn) != SUCCESS) {
    return false;
  }
  const auto has = [&](const char* key) {
    return turn.at_key(key).get(inner) == SUCCESS;
  };
  return (has("role") && has("content")) || (has("from") && has("value"));
}

class Account {
 public:
  Account(const MediaOfSample& media, const GetKeyUse& use)
      : media_(media), has_media_(media.any), use_(use) {}

  absl::Status Check(const object& root, const std::string& prefix,
                     int depth) const {
    bool describes_picture = false;
    if (!has_media_) {
      for (const auto& [key, value] : root) {
        describes_picture |= DescribesPicture(View(key)) && !value.is_null();
      }
    }
    element unused;
    const bool has_letters = root.at_key("A").get(unused) == SUCCESS &&
                             root.at_key("B").get(unused) == SUCCESS;
    for (const auto& [key, value] : root) {
      const std::string path = absl::StrCat(prefix, View(key));
      const KeyUse use = use_(path);
      if (use == KeyUse::kRead || IsEmpty(value)) continue;
      object map;
      const bool is_map = value.get(map) == SUCCESS;
      if (is_map && IsMedium(map)) {
        return Fault(path, "holds bytes", "images");
      }
      if (use != KeyUse::kWithin) {
        BALLAST_RETURN_IF_ERROR(
            CheckValue(path, View(key), value, describes_picture));
        const bool is_letter =
            has_letters && key.size() == 1 && absl::ascii_isupper(key[0]);
        if (is_letter || IsAmong(absl::AsciiStrToLower(View(key)), kOptions)) {
          BALLAST_RETURN_IF_ERROR(CheckOptions(path, value));
        }
      }
      constexpr int kDepth = 3;
      if (is_map && depth < kDepth) {
        BALLAST_RETURN_IF_ERROR(Check(map, absl::StrCat(path, "."), depth + 1));
      }
    }
    return absl::OkStatus();
  }

 private:
  static bool IsMedium(const object& map) {
    element number;
    return map.at_key("$ballast.media").get(number) == SUCCESS;
  }

  static absl::Status Fault(absl::string_view path, absl::string_view what,
                            absl::string_view reads) {
    const std::string key = Printable(path);
    return OfKind(
        DataFaultError(absl::StrCat(
            "key `", key, "` ", what,
            ", and the form does not read it; write `",
            reads.empty() ? ""
                          : absl::StrCat("form.", reads, ": ", key, "` or `"),
            "form.ignore: ", key, "` into the source")),
        kFormKeyUnread);
  }

  // Options that the question does not have leave an answer without its
  // meaning.
  absl::Status CheckOptions(const std::string& path,
                            const element& value) const {
    if (!media_.question.has_value()) return absl::OkStatus();
    std::vector<absl::string_view> options;
    AddTexts(value, &options);
    for (const absl::string_view option : options) {
      if (option == "[]" || absl::StrContains(*media_.question, option)) {
        continue;
      }
      return OfKind(
          DataFaultError(absl::StrCat(
              "key `", Printable(path),
              "` seems to hold the options of the "
              "question, which the question does not have, ",
              Printable(option.substr(0, 40)),
              ": the answer would be learnt without them; write them into the "
              "question, as a recipe does (docs/recipes.md), or write "
              "`form.ignore: ",
              Printable(path), "` into the source")),
          kFormKeyUnread);
    }
    return absl::OkStatus();
  }

  absl::Status CheckValue(const std::string& path, absl::string_view key,
                          const element& value, bool describes_picture) const {
    const std::string name = absl::AsciiStrToLower(key);
    const absl::string_view text = FirstText(value);
    if (LooksLikeMedia(text)) {
      return Fault(path, "holds media as text", "images");
    }
    if (IsPixels(value)) {
      return Fault(path, "seems to hold an array of pixels", "");
    }
    const bool is_said = !value.is_number() && !value.is_bool();
    if (is_said && ((!(has_media_ && IsName(text)) && IsMediaKey(key)) ||
                    NamesOtherMedia(key, value, media_.paths) ||
                    (IsMapKey(key) && NamesMedia(text)))) {
      return Fault(path, "seems to hold media or to name them", "images");
    }
    if (!has_media_ && media_.question.has_value() && IsPictureId(key)) {
      return Fault(path, "names a picture by its number", "");
    }
    if (!has_media_ && (NamesMedia(text) || IsMediaAddress(text) ||
                        (IsAddressKey(key) && absl::StrContains(text, "://") &&
                         describes_picture))) {
      return Fault(path,
                   absl::StrCat("names a file or the address of a picture, ",
                                Printable(text)),
                   "images");
    }
    if (IsAmong(name, kMarkValues)) {
      return Fault(path, "seems to hold values of marks in the texts", "");
    }
    // Tables have texts alone.
    bool verdict = true;
    if (IsAmong(name, kVerdicts) &&
        ((value.get(verdict) == SUCCESS && !verdict) ||
         absl::EqualsIgnoreCase(text, "false"))) {
      return Fault(path, "is false, which marks the answer as undesired", "");
    }
    if (IsAmong(name, kRejected)) {
      return Fault(path, "seems to be an answer that is not preferred", "");
    }
    if (IsAmong(name, kChosen)) {
      return Fault(path, "seems to be the preferred answer of a pair",
                   "assistant");
    }
    if (HoldsTurns(value)) return Fault(path, "holds turns", "messages");
    double weight = 1;
    if (IsAmong(name, kWeights) &&
        (value.is_string() ? absl::SimpleAtod(text, &weight) && weight != 1
                           : value.get(weight) != SUCCESS || weight != 1)) {
      return Fault(path, "seems to weigh what is learnt", "");
    }
    if (media_.any_video && IsAmong(name, kBounds)) {
      return Fault(path, "seems to bound a video or clip of audio", "");
    }
    if (IsAmong(name, kMasks)) {
      return Fault(path, "seems to mask what is learnt", "");
    }
    return absl::OkStatus();
  }

  const MediaOfSample& media_;
  const bool has_media_;
  const GetKeyUse& use_;
};

}  // namespace

bool LooksLikeMedia(absl::string_view text) {
  // JPEG, PNG, GIF, RIFF, TIFF and BMP, in base64; shorter texts are words.
  constexpr size_t kShortest = 64;
  constexpr absl::string_view kHeads[] = {
      "/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR", "SUkqA", "TU0AK", "Qk0"};
  if (absl::StartsWith(text, "data:image/") ||
      absl::StartsWith(text, "data:video/") ||
      absl::StartsWith(text, "data:audio/")) {
    return true;
  }
  return text.size() >= kShortest &&
         text.substr(0, kShortest).find_first_of(" \t") == text.npos &&
         std::any_of(std::begin(kHeads), std::end(kHeads),
                     [text](absl::string_view head) {
                       return absl::StartsWith(text, head);
                     });
}

absl::Status CheckEveryKey(const object& root, const MediaOfSample& media,
                           const GetKeyUse& use) {
  return Account(media, use).Check(root, "", 0);
}

absl::Status CheckNoRecordWithin(absl::string_view key,
                                 absl::string_view text) {
  if (!absl::StartsWith(text, "{")) return absl::OkStatus();
  simdjson::dom::parser parser;
  object root;
  if (parser.parse(text.data(), text.size()).get(root) != SUCCESS) {
    return absl::OkStatus();
  }
  for (const auto& [name, value] : root) {
    const absl::string_view inner = View(name);
    if (!IsAmong(inner, kChosen) && !IsAmong(inner, kRejected) &&
        inner != "question" && inner != "answer" && !HoldsTurns(value)) {
      continue;
    }
    return DataFaultError(absl::StrCat(
        "`", Printable(key), "` is the text of a record with `",
        Printable(inner),
        "`, which would be learnt as it stands; take a recipe that reads it "
        "(docs/recipes.md)"));
  }
  return absl::OkStatus();
}

}  // namespace ballast
