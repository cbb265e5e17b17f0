#include "server/data/energon/energon_content.h"

#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/data/energon/pickled_list.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/tar/webdataset_reader.h"
#include "server/recipe/turns_json.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

template <typename... Piece>
absl::Status Fault(const Piece&... pieces) {
  return DataFaultError(absl::StrCat(pieces...));
}

bool IsJson(absl::string_view part) {
  const std::string lower = absl::AsciiStrToLower(part);
  const absl::string_view extension =
      absl::string_view(lower).substr(lower.rfind('.') + 1);
  return extension == "json" || extension == "jsn";
}

// The value that `keys` lead to, nullopt if one of them is missing. An index
// below 0 counts from the end of a list.
std::optional<element> Follow(element value,
                              const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    array list;
    object map;
    if (value.get(map) == SUCCESS) {
      if (map.at_key(key).get(value) != SUCCESS) return std::nullopt;
    } else if (value.get(list) == SUCCESS) {
      int64_t index = 0;
      if (!absl::SimpleAtoi(key, &index)) return std::nullopt;
      if (index < 0) index += static_cast<int64_t>(list.size());
      if (index < 0 || list.at(index).get(value) != SUCCESS) {
        return std::nullopt;
      }
    } else {
      return std::nullopt;
    }
  }
  return value;
}

// Reads the fields of one sample.
class FieldReader {
 public:
  FieldReader(FileView file, const EnergonTarSample* sample,
              const EnergonFields* fields)
      : file_(file), sample_(*sample), fields_(*fields) {}

  // The part of a field of an image or a video.
  absl::StatusOr<EnergonPart> Medium(const std::string& field) const {
    for (const EnergonAccess& way : fields_.fields.at(field)) {
      if (const EnergonPart* part = Find(way.part)) return *part;
    }
    return Missing(field);
  }

  // The part of a field that a sample may lack, or whose field the folder does
  // not name; null without one.
  const EnergonPart* FindPart(const std::string& field) const {
    const auto ways = fields_.fields.find(field);
    if (ways == fields_.fields.end()) return nullptr;
    for (const EnergonAccess& way : ways->second) {
      if (const EnergonPart* part = Find(way.part)) return part;
    }
    return nullptr;
  }

  // The text of a part as a whole.
  absl::StatusOr<std::string> Whole(const std::string& field) {
    BALLAST_ASSIGN_OR_RETURN(const EnergonPart part, Medium(field));
    return Read(part);
  }

  // The text of a field; of a list of answers, the first.
  absl::StatusOr<std::string> Text(const std::string& field) {
    for (const EnergonAccess& way : fields_.fields.at(field)) {
      const EnergonPart* part = Find(way.part);
      if (part == nullptr) continue;
      BALLAST_ASSIGN_OR_RETURN(std::string bytes, Read(*part));
      if (!IsJson(way.part)) return bytes;
      simdjson::dom::parser parser;
      element root;
      const auto error = parser.parse(bytes).get(root);
      if (error != SUCCESS) {
        return Fault(Printable(part->name),
                     ": not JSON: ", simdjson::error_message(error));
      }
      BALLAST_RETURN_IF_ERROR(
          Annotate(CheckKeysOnce(bytes), Printable(part->name)));
      const std::optional<element> value = Follow(root, way.keys);
      if (!value.has_value()) continue;
      return GetText(*value, field);
    }
    return Missing(field);
  }

 private:
  static absl::StatusOr<std::string> GetText(element value,
                                             absl::string_view field) {
    std::string_view text;
    array list;
    if (value.get(text) == SUCCESS) return std::string(text);
    const bool may_be_list = field == "answers";
    if (may_be_list && value.get(list) == SUCCESS && list.size() > 0 &&
        list.at(0).get(text) == SUCCESS) {
      return std::string(text);
    }
    return Fault("field ", field, ": found ",
                 Printable(simdjson::minify(value)), "; wanted a text",
                 may_be_list ? " or a list of texts" : "");
  }

  const EnergonPart* Find(absl::string_view name) const {
    const auto found = std::find_if(
        sample_.parts.begin(), sample_.parts.end(),
        [name](const EnergonPart& part) { return part.name == name; });
    return found == sample_.parts.end() ? nullptr : &*found;
  }

  absl::StatusOr<std::string> Read(const EnergonPart& part) {
    if (part.size > kMaxTextBytes) {
      return Fault(Printable(part.name), ": text of ", part.size,
                   " bytes, wanted at most ", kMaxTextBytes);
    }
    return file_.ReadAt(part.data, part.size);
  }

  // Names the parts that are there.
  absl::Status Missing(const std::string& field) const {
    std::string wanted;
    for (const EnergonAccess& way : fields_.fields.at(field)) {
      absl::StrAppend(&wanted, wanted.empty() ? "" : " or ", way.part);
      for (const std::string& key : way.keys) {
        absl::StrAppend(&wanted, "[", key, "]");
      }
    }
    std::string found;
    for (size_t i = 0; i < std::min<size_t>(sample_.parts.size(), 10); ++i) {
      absl::StrAppend(&found, i == 0 ? "" : ", ", sample_.parts[i].name);
    }
    return Fault("field ", field, ": no ", Printable(wanted),
                 "; its parts are ", Printable(found));
  }

  FileView file_;
  const EnergonTarSample& sample_;
  const EnergonFields& fields_;
};

absl::Status CheckNoTwins(const EnergonTarSample& sample) {
  std::vector<absl::string_view> names;
  for (const EnergonPart& part : sample.parts) names.push_back(part.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return absl::OkStatus();
  return Fault("part ", Printable(*twin), " twice");
}

absl::Status CheckBytes(const EnergonContent& content) {
  uint64_t bytes = content.text.size();
  for (const MediumParts<EnergonPart>& image : content.media) {
    if (image.kind != MediumKind::kImage) continue;
    if (image.parts[0].size > kMaxSampleBytes - bytes) {
      return Fault("over ", kMaxSampleBytes, " bytes in all");
    }
    bytes += image.parts[0].size;
  }
  return absl::OkStatus();
}

// A sample as format webdataset reads it.
absl::StatusOr<EnergonContent> ReadCrude(FileView file,
                                         const EnergonTarSample& sample,
                                         bool lists, bool audios) {
  WebDatasetReader reader(file, sample.begin, sample.end, /*whole=*/false,
                          lists, audios);
  BALLAST_ASSIGN_OR_RETURN(const std::optional<WebDatasetSample> found,
                           reader.Next());
  if (!found) {
    return Fault(
        "no part that format webdataset knows: wanted KEY.json or "
        "KEY.txt, and images");
  }
  BALLAST_RETURN_IF_ERROR(found->fault);
  BALLAST_ASSIGN_OR_RETURN(const auto more, reader.Next());
  if (more) return Fault("two keys for format webdataset");
  EnergonContent content;
  content.text_format = found->text_format;
  BALLAST_ASSIGN_OR_RETURN(content.text,
                           file.ReadAt(found->text.data, found->text.size));
  for (const MediumParts<TarMember>& medium : found->media) {
    MediumParts<EnergonPart>& to = content.media.emplace_back();
    to.kind = medium.kind;
    to.is_list = medium.is_list;
    for (const TarMember& member : medium.parts) {
      to.parts.push_back({member.name, member.data, member.size});
    }
  }
  // With a video the text's marks are counted when it is measured.
  if (CountKinds(content.media)[MediumKind::kVideo] != 0) return content;
  absl::Status status;
  if (content.text_format == RawSample::TextFormat::kConversation) {
    status = CheckConversation(content.text);
  } else if (content.text_format == RawSample::TextFormat::kPlain) {
    status = CheckNoVideoMark(content.text);
  }
  if (!status.ok()) return Annotate(status, Printable(found->text.name));
  return content;
}

// The images or frames of a part that is a pickled list: of each item one, or
// its own.
absl::StatusOr<std::vector<MediumParts<EnergonPart>>> ReadPickled(
    const FileView& file, const EnergonPart& part, bool of_lists) {
  auto list = ReadPickledList(file, {part.data, part.size});
  if (!list.ok()) return Annotate(list.status(), Printable(part.name));
  if (!list->items.empty() && list->has_lists != of_lists) {
    return Fault(Printable(part.name), ": a pickled list of ",
                 list->has_lists ? "lists" : "bytes", "; wanted one of ",
                 of_lists ? "lists of frames, one a video" : "images");
  }
  std::vector<MediumParts<EnergonPart>> items;
  for (const std::vector<ByteRange>& ranges : list->items) {
    MediumParts<EnergonPart>& item = items.emplace_back();
    item.kind = of_lists ? MediumKind::kVideo : MediumKind::kImage;
    item.is_list = of_lists;
    for (const ByteRange& range : ranges) {
      item.parts.push_back({absl::StrCat(part.name, "[", items.size() - 1, "]"),
                            range.offset, range.size});
    }
    if (item.parts.empty()) {
      return Fault(Printable(part.name), ": item ", items.size() - 1,
                   " is an empty list; wanted frames");
    }
  }
  return items;
}

bool EndsWithAny(absl::string_view part,
                 std::initializer_list<absl::string_view> endings) {
  const std::string lower = absl::AsciiStrToLower(part);
  const size_t dot = lower.rfind('.');
  const absl::string_view ending =
      absl::string_view(lower).substr(dot == lower.npos ? 0 : dot + 1);
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

// A field of Megatron-Bridge's ChatMLWebdataset with media.
struct ChatMlField {
  const char* name;
  MediumKind kind;
  // Endings of a part that is a pickled list of them.
  std::initializer_list<absl::string_view> lists;
};

constexpr ChatMlField kChatMlFields[] = {
    {"imgs", MediumKind::kImage, {"jpgs"}},
    {"videos", MediumKind::kVideo, {"videos", "mp4s"}},
    {"audio", MediumKind::kAudio, {}},
};

absl::Status AddMedia(const FileView& file, const EnergonPart& part,
                      const ChatMlField& field, EnergonContent* content) {
  if (EndsWithAny(part.name, field.lists)) {
    BALLAST_ASSIGN_OR_RETURN(
        std::vector<MediumParts<EnergonPart>> items,
        ReadPickled(file, part, field.kind == MediumKind::kVideo));
    for (MediumParts<EnergonPart>& item : items) {
      content->media.push_back(std::move(item));
    }
    return absl::OkStatus();
  }
  if (field.kind == MediumKind::kAudio &&
      !EndsWithAny(part.name, {"wav", "flac", "mp3", "ogg", "opus", "m4a"})) {
    return Fault("part ", Printable(part.name),
                 ": audio in a pickled list or of another format is not "
                 "read; wanted wav, flac, mp3, ogg, opus or m4a");
  }
  content->media.push_back({field.kind, {part}});
  return absl::OkStatus();
}

// A sample of Megatron-Bridge's ChatMLWebdataset.
absl::StatusOr<EnergonContent> ReadChatMl(FileView file,
                                          const EnergonTarSample& sample,
                                          const EnergonFields& fields) {
  FieldReader reader(file, &sample, &fields);
  EnergonContent content;
  BALLAST_ASSIGN_OR_RETURN(content.text, reader.Whole("conversation"));
  if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(content.text), "[")) {
    content.text = absl::StrCat("{\"messages\":", content.text, "}");
  }
  for (const ChatMlField& field : kChatMlFields) {
    const EnergonPart* part = reader.FindPart(field.name);
    if (part == nullptr) continue;
    BALLAST_RETURN_IF_ERROR(AddMedia(file, *part, field, &content));
  }
  const MediaCounts counts = CountKinds(content.media);
  if (counts[MediumKind::kImage] > kMaxImages ||
      counts[MediumKind::kVideo] > kMaxVideos) {
    return Fault("over ", kMaxImages, " images or ", kMaxVideos, " videos");
  }
  // With a video the text's marks are counted when it is measured.
  if (counts[MediumKind::kVideo] == 0) {
    BALLAST_RETURN_IF_ERROR(CheckConversation(content.text));
  }
  BALLAST_RETURN_IF_ERROR(CheckBytes(content));
  return content;
}

}  // namespace

absl::StatusOr<EnergonContent> ReadEnergonContent(
    FileView file, const EnergonTarSample& sample, const EnergonFields& fields,
    bool lists, bool audios) {
  if (fields.type == EnergonType::kCrude) {
    return ReadCrude(file, sample, lists, audios);
  }
  BALLAST_RETURN_IF_ERROR(CheckNoTwins(sample));
  if (fields.type == EnergonType::kChatMl) {
    return ReadChatMl(file, sample, fields);
  }
  FieldReader reader(file, &sample, &fields);
  EnergonContent content;
  if (fields.type == EnergonType::kText) {
    BALLAST_ASSIGN_OR_RETURN(content.text, reader.Text("text"));
    content.text_format = RawSample::TextFormat::kPlain;
    BALLAST_RETURN_IF_ERROR(CheckNoVideoMark(content.text));
    return content;
  }
  const bool is_video = fields.type == EnergonType::kVidQa;
  const bool has_question = is_video || fields.type == EnergonType::kVqa;
  BALLAST_ASSIGN_OR_RETURN(const EnergonPart medium,
                           reader.Medium(is_video ? "video" : "image"));
  content.media.push_back(
      {is_video ? MediumKind::kVideo : MediumKind::kImage, {medium}});
  std::string question;
  if (has_question) {
    BALLAST_ASSIGN_OR_RETURN(question, reader.Text("context"));
  }
  const char* const field = has_question ? "answers"
                            : fields.type == EnergonType::kCaptioning
                                ? "caption"
                                : "text";
  BALLAST_ASSIGN_OR_RETURN(const std::string answer, reader.Text(field));
  TurnsJson turns;
  turns.AddTurn("user", question);
  turns.AddTurn("assistant", answer);
  BALLAST_ASSIGN_OR_RETURN(
      content.text,
      std::move(turns).Finish(is_video ? 0 : 1, is_video ? 1 : 0));
  if (!is_video) BALLAST_RETURN_IF_ERROR(CheckConversation(content.text));
  BALLAST_RETURN_IF_ERROR(CheckBytes(content));
  return content;
}

}  // namespace ballast
