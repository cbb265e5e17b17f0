#include "server/data/form/form.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <simdjson.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/data/form/forms.h"
#include "server/data/form/unread.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/document_json.h"
#include "server/data/jsonl/python_json.h"
#include "server/recipe/turns_json.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;
using Key = FormReader::Key;
using Path = FormReader::Path;
using Step = FormReader::Step;

constexpr char kMedia[] = "$ballast.media";

absl::StatusOr<Path> ParsePath(absl::string_view text) {
  Path path;
  path.text = std::string(text);
  for (absl::string_view name : absl::StrSplit(text, '.')) {
    const size_t bracket = std::min(name.find('['), name.size());
    absl::string_view entries = name.substr(bracket);
    name = name.substr(0, bracket);
    if (name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found \"", text, "\"; wanted a path: NAME, NAME.NAME, NAME[0]"));
    }
    path.steps.push_back({Step::Kind::kName, std::string(name)});
    while (!entries.empty()) {
      const size_t end = entries.find(']');
      Step step = {Step::Kind::kAll, ""};
      const absl::string_view number =
          end == entries.npos ? "x" : entries.substr(1, end - 1);
      if (!number.empty()) {
        step.kind = Step::Kind::kEntry;
        if (entries[0] != '[' || !absl::SimpleAtoi(number, &step.entry)) {
          return absl::InvalidArgumentError(
              absl::StrCat("found \"", text,
                           "\"; wanted [] or [NUMBER] after the name of a "
                           "list"));
        }
      }
      path.steps.push_back(std::move(step));
      entries.remove_prefix(end + 1);
    }
  }
  return path;
}

absl::StatusOr<Key> ParseKey(absl::string_view text) {
  Key key;
  key.text = std::string(text);
  for (const absl::string_view one : absl::StrSplit(text, '|')) {
    BALLAST_ASSIGN_OR_RETURN(Path path,
                             ParsePath(absl::StripAsciiWhitespace(one)));
    key.paths.push_back(std::move(path));
  }
  return key;
}

template <typename List>
absl::Status ParseKeys(const char* name, const List& texts,
                       std::vector<Key>* keys) {
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    auto key = ParseKey(text);
    if (!key.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("form.", name, ": ", key.status().message()));
    }
    keys->push_back(*std::move(key));
  }
  return absl::OkStatus();
}

std::string Kind(const element& value) {
  switch (value.type()) {
    case simdjson::dom::element_type::ARRAY:
      return "a list";
    case simdjson::dom::element_type::OBJECT:
      return "a struct";
    case simdjson::dom::element_type::STRING:
      return "a text";
    case simdjson::dom::element_type::BOOL:
      return "true or false";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

bool IsEmpty(const element& value) {
  std::string_view text;
  array list;
  return value.is_null() || (value.get(text) == SUCCESS && text.empty()) ||
         (value.get(list) == SUCCESS && list.size() == 0);
}

// Whether a list is one of turns: of structs, or of lists.
bool IsTurns(const element& value) {
  array list;
  return value.get(list) == SUCCESS && list.size() > 0 &&
         list.at(0).value_unsafe().is_object();
}

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

std::string Quoted(absl::string_view text) {
  std::string json;
  AppendJsonText(text, &json);
  return json;
}

// The members of a tar's sample as one object of JSON: texts, JSON, and the
// numbers of the others.
std::string MembersJson(const RecipeRecord& record) {
  std::string json = "{";
  for (size_t i = 0; i < record.parts.size(); ++i) {
    const RecipeRecord::Part& part = record.parts[i];
    absl::StrAppend(&json, i > 0 ? "," : "", Quoted(part.name), ":");
    const bool is_json =
        part.name == "json" || absl::EndsWith(part.name, ".json");
    if (is_json && part.bytes.has_value()) {
      absl::StrAppend(&json, FromPythonJson(*part.bytes));
    } else if (part.bytes.has_value() && CheckUtf8(*part.bytes).ok() &&
               !absl::StrContains(*part.bytes, '\0')) {
      AppendJsonText(*part.bytes, &json);
    } else {
      absl::StrAppend(&json, "{\"", kMedia, "\":", i, "}");
    }
  }
  return json + "}";
}

}  // namespace

// The evaluation of a form over one record.
class FormEvaluation {
 public:
  FormEvaluation(const FormReader* reader, const RecipeRecord* record)
      : reader_(*reader), form_(reader->form_), record_(*record) {}

  absl::StatusOr<FormSample> Evaluate() {
    BALLAST_RETURN_IF_ERROR(Parse());
    BALLAST_RETURN_IF_ERROR(ReadMedia());
    BALLAST_RETURN_IF_ERROR(reader_.text_.empty() ? ReadConversation()
                                                  : ReadDocument());
    const bool has_media =
        !result_.sample.images.empty() || !result_.sample.videos.empty();
    BALLAST_RETURN_IF_ERROR(
        CheckEveryKey(root_, has_media,
                      [this](const std::string& path) { return UseOf(path); }));
    CookedSample& sample = result_.sample;
    sample.hash = Hash(sample);
    return std::move(result_);
  }

 private:
  // A medium, with the mark that stands for it, if the record says one.
  struct Found {
    CookedSample::Video medium;
    std::string mark = "";
  };

  absl::Status Fault(absl::string_view reason) const {
    return DataFaultError(reason);
  }

  static uint32_t Hash(const CookedSample& sample) {
    std::string all =
        absl::StrCat(sample.is_document ? "d" : "c", sample.text.size(), "\n",
                     sample.text, sample.fields);
    const auto add = [&all](const CookedSample::Medium& medium) {
      if (const auto* path = std::get_if<std::string>(&medium)) {
        absl::StrAppend(&all, "\n", *path);
      } else {
        absl::StrAppend(&all, "\n#", std::get<uint32_t>(medium));
      }
    };
    for (const CookedSample::Medium& image : sample.images) add(image);
    for (const CookedSample::Video& video : sample.videos) {
      absl::StrAppend(&all, "\n", video.is_list, video.is_audio);
      for (const CookedSample::Medium& part : video.parts) add(part);
    }
    RecipeRecord hashed;
    hashed.text = std::move(all);
    return hashed.hash();
  }

  absl::Status Parse() {
    const bool is_members = record_.kind == RecipeRecord::Kind::kMembers;
    std::string json = is_members ? MembersJson(record_) : record_.text;
    BALLAST_RETURN_IF_ERROR(ParseObject(json, &parser_, &root_));
    // As of conversations (conversation_json.h).
    if (record_.kind == RecipeRecord::Kind::kLine) {
      BALLAST_RETURN_IF_ERROR(CheckKeysOnce(json));
    }
    return absl::OkStatus();
  }

  // As JSON, or as Python writes it; `json` becomes what was parsed.
  static absl::Status ParseObject(std::string& json,
                                  simdjson::dom::parser* parser, object* root) {
    auto error = parser->parse(json).get(*root);
    if (error == simdjson::UTF8_ERROR) {
      json = ReplaceInvalidUtf8(json);
      error = parser->parse(json).get(*root);
    }
    if (error != SUCCESS && error != simdjson::INCORRECT_TYPE) {
      json = FromPythonJson(json);
      error = parser->parse(json).get(*root);
    }
    if (error == SUCCESS) return absl::OkStatus();
    return DataFaultError(
        error == simdjson::INCORRECT_TYPE
            ? "not a JSON object"
            : absl::StrCat("not JSON: ", simdjson::error_message(error)));
  }

  // --- finding values ---

  // The values at `steps` from `begin` on, below `from`.
  static void Walk(const element& from, const std::vector<Step>& steps,
                   size_t begin, std::vector<element>* found) {
    if (from.is_null()) return;
    if (begin == steps.size()) {
      found->push_back(from);
      return;
    }
    const Step& step = steps[begin];
    object map;
    array list;
    element next;
    if (step.kind == Step::Kind::kName) {
      if (from.get(map) == SUCCESS &&
          map.at_key(step.name).get(next) == SUCCESS) {
        Walk(next, steps, begin + 1, found);
      }
    } else if (from.get(list) == SUCCESS) {
      if (step.kind == Step::Kind::kAll) {
        for (const element item : list) Walk(item, steps, begin + 1, found);
      } else if (list.at(step.entry).get(next) == SUCCESS) {
        Walk(next, steps, begin + 1, found);
      }
    }
  }

  // The values of a path; a name with dots is looked for as it is first, and
  // what no member of a tar has in its JSON.
  std::vector<element> Values(const Path& path, std::string* at) const {
    std::vector<element> found;
    const auto look = [&](const object& root, absl::string_view prefix) {
      element value;
      if (root.at_key(path.text).get(value) == SUCCESS && !value.is_null()) {
        found.push_back(value);
      } else if (root.at_key(path.steps[0].name).get(value) == SUCCESS) {
        Walk(value, path.steps, 1, &found);
      }
      if (!found.empty()) *at = absl::StrCat(prefix, path.text);
    };
    look(root_, "");
    object json;
    if (found.empty() && record_.kind == RecipeRecord::Kind::kMembers &&
        root_.at_key("json").get(json) == SUCCESS) {
      look(json, "json.");
    }
    return found;
  }

  void Use(absl::string_view key, size_t entry, const std::string& path) {
    read_.insert(path);
    result_.used.push_back({std::string(key), entry, path});
  }

  // The values of the first path of `key` with some that `takes` likes. Empty
  // values count as none.
  template <typename Takes>
  std::vector<element> Find(const char* name, const std::vector<Key>& keys,
                            size_t entry, Takes takes) {
    const Key& key = keys[entry];
    for (const Path& path : key.paths) {
      std::string at;
      std::vector<element> values = Values(path, &at);
      std::erase_if(values, IsEmpty);
      if (values.empty() || !std::all_of(values.begin(), values.end(), takes)) {
        continue;
      }
      Use(name, entry, at);
      return values;
    }
    return {};
  }

  KeyUse UseOf(const std::string& path) const {
    const auto matches = [&path](absl::string_view read, KeyUse* use) {
      // A list of which an entry is read is read.
      if (path == read || path == read.substr(0, read.find('['))) {
        *use = KeyUse::kRead;
        return true;
      }
      if (absl::StartsWith(read, absl::StrCat(path, "."))) {
        *use = KeyUse::kWithin;
      }
      return false;
    };
    KeyUse use = KeyUse::kUnread;
    for (const std::string& read : read_) {
      if (matches(read, &use)) return use;
    }
    for (const std::string& ignored : form_.ignore()) {
      if (matches(ignored, &use)) return use;
      if (path == absl::StrCat("json.", ignored)) return KeyUse::kRead;
    }
    for (const std::string& field : reader_.fields_) {
      if (path == field || path == absl::StrCat("json.", field)) {
        return KeyUse::kRead;
      }
    }
    // A member `json` is looked into.
    if (path == "json" && record_.kind == RecipeRecord::Kind::kMembers) {
      return KeyUse::kWithin;
    }
    return use;
  }

  // The names of the record's keys, for messages.
  std::string Names() const {
    std::vector<std::string> names;
    for (const auto& [key, value] : root_) {
      names.push_back(absl::StrCat("`", Printable(View(key)), "`"));
      object json;
      if (View(key) == "json" && value.get(json) == SUCCESS) {
        for (const auto& [inner, unused] : json) {
          names.push_back(absl::StrCat("`json.", Printable(View(inner)), "`"));
        }
      }
    }
    constexpr size_t kMost = 20;
    if (names.size() > kMost) names.resize(kMost);
    return absl::StrJoin(names, ", ");
  }

  static std::string Wanted(const char* name, const std::vector<Key>& keys) {
    std::vector<std::string> texts;
    for (const Key& key : keys) texts.push_back(key.text);
    return absl::StrCat("form.", name, ": ", absl::StrJoin(texts, ", "));
  }

  absl::Status Missing(const char* name, const std::vector<Key>& keys) const {
    for (const Key& key : keys) {
      for (const Path& path : key.paths) {
        std::string at;
        const std::vector<element> values = Values(path, &at);
        if (values.empty()) continue;
        return Fault(absl::StrCat(
            "`", Printable(at), "` is ",
            IsEmpty(values[0]) ? "empty" : Kind(values[0]),
            "; wanted a text or turns by ", Wanted(name, keys),
            values[0].is_array()
                ? absl::StrCat("; of a list of texts write `", at, "[0]`")
                : ""));
      }
    }
    return Fault(
        absl::StrCat("no value for ", Wanted(name, keys), "; found ", Names()));
  }

  // --- media ---

  // Adds the media of a value.
  absl::Status AddMedia(absl::string_view kind, const element& value,
                        std::vector<Found>* found) {
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
      for (const element item : list) {
        BALLAST_RETURN_IF_ERROR(AddMedia(kind, item, found));
      }
      return absl::OkStatus();
    }
    if (value.get(map) != SUCCESS) {
      return Fault(absl::StrCat("found ", Kind(value), " as ", kind,
                                "; wanted bytes, a path or base64"));
    }
    uint64_t number;
    if (map.at_key(kMedia).get(number) == SUCCESS) {
      found->push_back({OneMedium(static_cast<uint32_t>(number))});
      return absl::OkStatus();
    }
    // Bytes come first: `path` beside them is their name.
    for (const char* name :
         {"bytes", "data", "base64", "image", "video", "audio", "path",
          "image_url", "url", "image_path", "file_name", "filename", "file"}) {
      element inner;
      if (map.at_key(name).get(inner) == SUCCESS && !IsEmpty(inner) &&
          !inner.is_number()) {
        return AddMedia(kind, inner, found);
      }
    }
    if (map.size() == 0) return absl::OkStatus();
    // MiniCPM's images by their marks.
    std::vector<Found> marked;
    for (const auto& [mark, inner] : map) {
      if (inner.is_null() || IsEmpty(inner)) continue;
      if (mark.empty() || mark[0] != '<' || !inner.is_string()) {
        return Fault(absl::StrCat("found a struct of `", Printable(View(mark)),
                                  "` as ", kind,
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

  static CookedSample::Video OneMedium(CookedSample::Medium medium) {
    CookedSample::Video one;
    one.parts.push_back(std::move(medium));
    return one;
  }

  absl::StatusOr<CookedSample::Medium> TextMedium(absl::string_view kind,
                                                  absl::string_view text) {
    if (!LooksLikeMedia(text)) return CookedSample::Medium(std::string(text));
    std::optional<std::string> bytes = Decode(text);
    if (!bytes.has_value()) {
      return Fault(absl::StrCat(kind, " is a text that is no base64: ",
                                Printable(text.substr(0, 40))));
    }
    media_bytes_ += bytes->size();
    if (media_bytes_ > kMaxSampleBytes) {
      return Fault(absl::StrCat("over ", kMaxSampleBytes, " bytes in all"));
    }
    result_.media.push_back(*std::move(bytes));
    return CookedSample::Medium(
        static_cast<uint32_t>(record_.parts.size() + result_.media.size() - 1));
  }

  absl::Status ReadKeysOf(const char* name, const std::vector<Key>& keys,
                          std::vector<Found>* found) {
    for (size_t entry = 0; entry < keys.size(); ++entry) {
      const std::vector<element> values =
          Find(name, keys, entry, [](const element& value) {
            return value.is_string() || value.is_object() || value.is_array();
          });
      for (const element& value : values) {
        if (const absl::Status added = AddMedia(name, value, found);
            !added.ok()) {
          return Annotate(added, absl::StrCat("`", read_of(name), "`"));
        }
      }
    }
    return absl::OkStatus();
  }

  // The last path that `key` of the form read.
  std::string read_of(absl::string_view key) const {
    std::string path;
    for (const FormSample::Use& use : result_.used) {
      if (use.key == key) path = use.path;
    }
    return path;
  }

  absl::Status ReadMedia() {
    BALLAST_RETURN_IF_ERROR(ReadKeysOf("images", reader_.images_, &images_));
    BALLAST_RETURN_IF_ERROR(ReadKeysOf("videos", reader_.videos_, &videos_));
    BALLAST_RETURN_IF_ERROR(ReadKeysOf("audios", reader_.audios_, &audios_));
    return absl::OkStatus();
  }

  // --- texts ---

  // Keeps a text until the turns are written.
  absl::string_view Keep(std::string text) {
    texts_.push_back(std::move(text));
    return texts_.back();
  }

  // The media of the marks in a text, in order, and the text with `<image>`
  // for each.
  absl::StatusOr<absl::string_view> Marked(absl::string_view text) {
    std::string made;
    size_t done = 0;
    for (size_t at = text.find('<'); at != text.npos;
         at = text.find('<', at + 1)) {
      size_t length = 0;
      BALLAST_ASSIGN_OR_RETURN(const absl::string_view medium,
                               TakeMark(text.substr(at), &length));
      if (medium.empty()) continue;
      absl::StrAppend(&made, text.substr(done, at - done), "<", medium, ">");
      done = at + length;
      at = done - 1;
    }
    absl::StrAppend(&made, text.substr(done));
    return Keep(std::move(made));
  }

  // The medium of a mark at the beginning of `text`; "" if there is none.
  absl::StatusOr<absl::string_view> TakeMark(absl::string_view text,
                                             size_t* length) {
    // What the images are called decides before the form does.
    const Found* longest = nullptr;
    size_t place = 0;
    for (size_t i = 0; i < images_.size(); ++i) {
      const Found& image = images_[i];
      if (image.mark.empty() || !absl::StartsWith(text, image.mark)) continue;
      if (longest == nullptr || image.mark.size() > longest->mark.size()) {
        longest = &image;
        place = i;
      }
    }
    if (longest != nullptr) {
      *length = longest->mark.size();
      places_.push_back(place);
      return "image";
    }
    const std::pair<const char*,
                    const google::protobuf::RepeatedPtrField<std::string>*>
        marks[] = {{"image", &form_.marks().image()},
                   {"video", &form_.marks().video()},
                   {"audio", &form_.marks().audio()}};
    for (const auto& [medium, spellings] : marks) {
      const std::string own = absl::StrCat("<", medium, ">");
      if (absl::StartsWith(text, own)) {
        *length = own.size();
        ++marks_;
        if (std::string_view(medium) == "image") places_.push_back(kNext);
        return medium;
      }
      for (const std::string& spelling : *spellings) {
        const size_t number_at = spelling.find("{n}");
        if (number_at == spelling.npos) {
          if (!absl::StartsWith(text, spelling)) continue;
          *length = spelling.size();
          ++marks_;
          if (std::string_view(medium) == "image") places_.push_back(kNext);
          return medium;
        }
        const absl::string_view before =
            absl::string_view(spelling).substr(0, number_at);
        const absl::string_view after =
            absl::string_view(spelling).substr(number_at + 3);
        if (!absl::StartsWith(text, before)) continue;
        size_t end = before.size();
        while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
        uint32_t number = 0;
        if (end == before.size() ||
            !absl::SimpleAtoi(text.substr(before.size(), end - before.size()),
                              &number) ||
            !absl::StartsWith(text.substr(end), after)) {
          continue;
        }
        *length = end + after.size();
        ++marks_;
        if (std::string_view(medium) == "image") {
          numbered_ = true;
          places_.push_back(number);
        }
        return medium;
      }
    }
    return "";
  }

  // Puts the images into the order of their marks.
  absl::Status OrderImages() {
    const bool by_mark =
        std::any_of(images_.begin(), images_.end(),
                    [](const Found& image) { return !image.mark.empty(); });
    std::vector<CookedSample::Medium>& images = result_.sample.images;
    const auto first = [](const Found& image) { return image.medium.parts[0]; };
    if (places_.empty() || (!by_mark && !numbered_)) {
      for (const Found& image : images_) images.push_back(first(image));
      return absl::OkStatus();
    }
    size_t base = 1;
    for (const size_t place : places_) {
      if (place == kNext) {
        return Fault(
            "marks of images with and without a number or a name, so their "
            "order is not known; wanted all of one kind");
      }
      if (by_mark || place == 0) base = 0;
    }
    std::set<size_t> taken;
    for (const size_t place : places_) {
      if (place < base || place - base >= images_.size()) {
        return Fault(absl::StrCat("a mark of image ", place, ", of ",
                                  images_.size(), " images"));
      }
      taken.insert(place - base);
      images.push_back(first(images_[place - base]));
    }
    if (taken.size() == images_.size()) return absl::OkStatus();
    return Fault(absl::StrCat("the texts have marks of ", taken.size(), " of ",
                              images_.size(),
                              " images; wanted a mark for each"));
  }

  absl::Status ReadDocument() {
    const auto is_text = [](const element& value) { return value.is_string(); };
    const std::vector<element> values = Find("text", reader_.text_, 0, is_text);
    if (values.empty()) return Missing("text", reader_.text_);
    std::vector<std::string> texts;
    for (const element& value : values) {
      BALLAST_ASSIGN_OR_RETURN(const absl::string_view text,
                               Marked(View(value.get_string().value_unsafe())));
      texts.emplace_back(text);
    }
    BALLAST_RETURN_IF_ERROR(OrderImages());
    AddVideos();
    CookedSample& sample = result_.sample;
    sample.is_document = true;
    if (marks_ == 0 && places_.empty()) {
      for (size_t i = 0; i < sample.images.size(); ++i) {
        sample.text += "<image>";
      }
      for (const CookedSample::Video& video : sample.videos) {
        sample.text += video.is_audio ? "<audio>" : "<video>";
      }
    }
    sample.text += absl::StrJoin(texts, "\n");
    if (!reader_.fields_.empty()) {
      sample.fields = record_.kind == RecipeRecord::Kind::kMembers
                          ? MembersFields()
                          : record_.text;
    }
    return absl::OkStatus();
  }

  std::string MembersFields() const {
    element json;
    return root_.at_key("json").get(json) == SUCCESS && json.is_object()
               ? std::string(simdjson::minify(json))
               : "";
  }

  void AddVideos() {
    for (std::vector<Found>* media : {&videos_, &audios_}) {
      for (Found& one : *media) {
        one.medium.is_audio = media == &audios_;
        result_.sample.videos.push_back(std::move(one.medium));
      }
    }
  }

  // --- turns ---

  absl::string_view RoleOf(std::string_view said) const {
    const std::pair<const char*,
                    const google::protobuf::RepeatedPtrField<std::string>*>
        roles[] = {{"user", &form_.roles().user()},
                   {"assistant", &form_.roles().assistant()},
                   {"system", &form_.roles().system()},
                   {"tool", &form_.roles().tool()}};
    for (const auto& [role, spellings] : roles) {
      for (const std::string& spelling : *spellings) {
        if (spelling == said) return role;
      }
    }
    return View(said);
  }

  // A turn's value under the form's key, or else under one of the usual ones.
  static bool FindIn(const object& turn, const std::string& key,
                     std::initializer_list<const char*> usual, element* value,
                     std::string* name) {
    if (!key.empty()) {
      *name = key;
      return turn.at_key(key).get(*value) == SUCCESS;
    }
    for (const char* each : usual) {
      if (turn.at_key(each).get(*value) == SUCCESS && !value->is_null()) {
        *name = each;
        return true;
      }
    }
    return false;
  }

  absl::Status AddTurn(absl::string_view role, const element& content) {
    std::string_view text;
    array parts;
    if (content.get(text) == SUCCESS) {
      BALLAST_ASSIGN_OR_RETURN(const absl::string_view made,
                               Marked(View(text)));
      turns_.AddTurn(role, made);
    } else if (content.get(parts) == SUCCESS) {
      turns_.BeginTurn(role);
      for (const element part : parts) {
        BALLAST_RETURN_IF_ERROR(AddPart(part));
      }
    } else {
      return Fault(absl::StrCat("found ", Kind(content),
                                " as the content of a turn; wanted a text or "
                                "a list of parts"));
    }
    return absl::OkStatus();
  }

  absl::Status AddPart(const element& part) {
    std::string_view text, type;
    object map;
    if (part.get(text) == SUCCESS) {
      BALLAST_ASSIGN_OR_RETURN(const absl::string_view made,
                               Marked(View(text)));
      turns_.AddText(made);
      return absl::OkStatus();
    }
    if (part.get(map) != SUCCESS) {
      return Fault(absl::StrCat("found ", Kind(part),
                                " as a part of a turn; wanted a text or a "
                                "struct with `type`"));
    }
    element value;
    if (map.at_key("type").get(type) != SUCCESS) {
      for (const char* each : {"text", "image", "image_url", "video"}) {
        if (map.at_key(each).get(value) == SUCCESS && !value.is_null()) {
          type = each;
          break;
        }
      }
    }
    if (type == "text" || type == "input_text") {
      if (map.at_key("text").get(text) != SUCCESS &&
          map.at_key("content").get(text) != SUCCESS &&
          map.at_key("value").get(text) != SUCCESS) {
        return Fault("a part of type text without `text`");
      }
      BALLAST_ASSIGN_OR_RETURN(const absl::string_view made,
                               Marked(View(text)));
      turns_.AddText(made);
      return absl::OkStatus();
    }
    if (type == "image" || type == "image_url" || type == "input_image") {
      return AddImagePart(map);
    }
    return Fault(absl::StrCat(
        "a part of type ", Printable(View(type)),
        " in a form; wanted text and image; of others take the format's own "
        "form or a recipe"));
  }

  absl::Status AddImagePart(const object& part) {
    constexpr const char* kSizes[] = {"min_pixels", "max_pixels",
                                      "resized_height", "resized_width"};
    for (const char* key : kSizes) {
      element value;
      if (part.at_key(key).get(value) != SUCCESS || value.is_null()) continue;
      return Fault(absl::StrCat("`", key,
                                "` of one image is not supported; set "
                                "min_pixels and max_pixels for all in model"));
    }
    double index;
    if (part.at_key("index").get(index) == SUCCESS) {
      BALLAST_RETURN_IF_ERROR(CheckImageIndex(index, places_.size()));
    }
    turns_.AddPart("image");
    ++marks_;
    std::vector<Found> found;
    for (const char* key : {"image", "image_url", "path", "url", "bytes",
                            "data", "source", "content", "value"}) {
      element value;
      if (part.at_key(key).get(value) != SUCCESS || IsEmpty(value) ||
          value.is_number()) {
        continue;
      }
      BALLAST_RETURN_IF_ERROR(
          Annotate(AddMedia("image", value, &found), "a part of type image"));
      break;
    }
    if (found.size() > 1) {
      return Fault("a part of type image with several images");
    }
    if (!found.empty()) {
      in_parts_.push_back(std::move(found[0]));
      return absl::OkStatus();
    }
    places_.push_back(kNext);
    return absl::OkStatus();
  }

  absl::Status AddTurns(const array& list) {
    for (const element item : list) {
      object turn;
      if (item.get(turn) != SUCCESS) {
        return Fault(absl::StrCat("found ", Kind(item),
                                  " as a turn; wanted a struct with a role and "
                                  "a content"));
      }
      // The Cauldron's and FineVision's pairs.
      std::string_view asked, said;
      if (turn.at_key("user").get(asked) == SUCCESS &&
          turn.at_key("assistant").get(said) == SUCCESS) {
        element of_user = turn.at_key("user").value_unsafe();
        element of_assistant = turn.at_key("assistant").value_unsafe();
        BALLAST_RETURN_IF_ERROR(AddTurn("user", of_user));
        BALLAST_RETURN_IF_ERROR(AddTurn("assistant", of_assistant));
        continue;
      }
      element role, content;
      std::string role_key, content_key;
      std::string_view role_text;
      if (!FindIn(turn, form_.role_key(), {"role", "from", "speaker"}, &role,
                  &role_key) ||
          role.get(role_text) != SUCCESS) {
        return Fault(absl::StrCat(
            "a turn without a role; wanted ",
            form_.role_key().empty() ? "`role` or `from`"
                                     : absl::StrCat("`", form_.role_key(), "`"),
            "; name its key in form.role_key"));
      }
      if (!FindIn(turn, form_.content_key(),
                  {"content", "value", "text", "utterance"}, &content,
                  &content_key)) {
        return Fault(
            absl::StrCat("a turn without a content; wanted ",
                         form_.content_key().empty()
                             ? "`content` or `value`"
                             : absl::StrCat("`", form_.content_key(), "`"),
                         "; name its key in form.content_key"));
      }
      BALLAST_RETURN_IF_ERROR(AddTurn(RoleOf(role_text), content));
      for (const auto& [key, value] : turn) {
        if (View(key) == role_key || View(key) == content_key ||
            value.is_null()) {
          continue;
        }
        // Weights, reasoning, calls of tools: server/text reads or refuses
        // them.
        turns_.AddKey(View(key), Keep(std::string(simdjson::minify(value))));
      }
    }
    return absl::OkStatus();
  }

  // A list of turns, or the text of one.
  absl::Status AddTurns(const element& value) {
    array list;
    if (value.get(list) == SUCCESS) return AddTurns(list);
    std::string_view text;
    if (value.get(text) == SUCCESS) {
      parsers_.emplace_back();
      if (parsers_.back().parse(text.data(), text.size()).get(list) ==
          SUCCESS) {
        return AddTurns(list);
      }
    }
    return Fault(absl::StrCat("found ", Kind(value),
                              " as turns; wanted a list of them"));
  }

  absl::Status ReadHistory() {
    if (reader_.history_.empty()) return absl::OkStatus();
    const std::vector<element> values =
        Find("history", reader_.history_, 0,
             [](const element& value) { return value.is_array(); });
    for (const element& value : values) {
      if (IsTurns(value)) {
        BALLAST_RETURN_IF_ERROR(AddTurns(value));
        continue;
      }
      for (const element item : value.get_array().value_unsafe()) {
        array pair;
        element asked, said;
        if (item.get(pair) != SUCCESS || pair.size() != 2 ||
            pair.at(0).get(asked) != SUCCESS ||
            pair.at(1).get(said) != SUCCESS) {
          return Fault(absl::StrCat(
              "found ", Kind(item),
              " in the history; wanted lists of a question and its answer"));
        }
        BALLAST_RETURN_IF_ERROR(AddTurn("user", asked));
        BALLAST_RETURN_IF_ERROR(AddTurn("assistant", said));
      }
    }
    return absl::OkStatus();
  }

  // The texts of `keys`, as one turn; or their turns.
  absl::Status ReadSide(const char* name, absl::string_view role,
                        const std::vector<Key>& keys) {
    std::vector<std::string> texts;
    bool is_found = false;
    for (size_t entry = 0; entry < keys.size(); ++entry) {
      const std::vector<element> values =
          Find(name, keys, entry, [](const element& value) {
            return value.is_string() || value.is_number() || IsTurns(value);
          });
      for (const element& value : values) {
        is_found = true;
        if (IsTurns(value)) {
          BALLAST_RETURN_IF_ERROR(AddTurns(value));
        } else if (value.is_number()) {
          texts.push_back(std::string(simdjson::minify(value)));
        } else {
          BALLAST_ASSIGN_OR_RETURN(
              const absl::string_view text,
              Marked(View(value.get_string().value_unsafe())));
          texts.emplace_back(text);
        }
      }
    }
    if (!is_found) return Missing(name, keys);
    if (texts.empty()) return absl::OkStatus();
    turns_.AddTurn(role, Keep(absl::StrJoin(texts, "\n")));
    return absl::OkStatus();
  }

  absl::Status ReadConversation() {
    if (!reader_.system_.empty()) {
      const std::vector<element> values =
          Find("system", reader_.system_, 0,
               [](const element& value) { return value.is_string(); });
      for (const element& value : values) {
        turns_.AddTurn("system", View(value.get_string().value_unsafe()));
      }
    }
    BALLAST_RETURN_IF_ERROR(ReadHistory());
    if (reader_.messages_.empty()) {
      BALLAST_RETURN_IF_ERROR(ReadSide("user", "user", reader_.user_));
      BALLAST_RETURN_IF_ERROR(
          ReadSide("assistant", "assistant", reader_.assistant_));
    } else {
      bool is_found = false;
      for (size_t i = 0; i < reader_.messages_.size(); ++i) {
        const std::vector<element> values =
            Find("messages", reader_.messages_, i, [](const element& value) {
              std::string_view text;
              return value.is_array() ||
                     (value.get(text) == SUCCESS &&
                      absl::StartsWith(
                          absl::StripLeadingAsciiWhitespace(View(text)), "["));
            });
        for (const element& value : values) {
          is_found = true;
          BALLAST_RETURN_IF_ERROR(Annotate(
              AddTurns(value), absl::StrCat("`", read_of("messages"), "`")));
        }
      }
      if (!is_found) return Missing("messages", reader_.messages_);
      BALLAST_RETURN_IF_ERROR(CheckImagesHavePlaces());
    }
    BALLAST_RETURN_IF_ERROR(TakeImagesOfParts());
    BALLAST_RETURN_IF_ERROR(OrderImages());
    AddVideos();
    AddBeside();
    BALLAST_ASSIGN_OR_RETURN(
        result_.sample.text,
        std::move(turns_).Finish(result_.sample.images.size(), videos_.size(),
                                 audios_.size()));
    return absl::OkStatus();
  }

  // In rows images without a mark come first, as the format has it; turns of a
  // line say where their images are.
  absl::Status CheckImagesHavePlaces() const {
    if (record_.kind == RecipeRecord::Kind::kRow || images_.empty() ||
        marks_ > 0 || !places_.empty()) {
      return absl::OkStatus();
    }
    return Fault(absl::StrCat(
        images_.size(), images_.size() == 1 ? " image" : " images",
        " and no mark in the turns; write <image> where each stands, or name "
        "the mark that stands there in form.marks.image"));
  }

  absl::Status TakeImagesOfParts() {
    if (in_parts_.empty()) return absl::OkStatus();
    if (!images_.empty()) {
      return Fault(
          "images in the parts of the turns and under a key beside them; "
          "wanted one of the two: leave the key out of form.images, and name "
          "it in form.ignore");
    }
    images_ = std::move(in_parts_);
    places_.clear();
    numbered_ = false;
    return absl::OkStatus();
  }

  // The numbers that travel with the sample; tools and documents, which the
  // checkpoint's own template writes.
  void AddBeside() {
    for (const char* key : {"tools", "documents"}) {
      element value;
      if (root_.at_key(key).get(value) != SUCCESS || IsEmpty(value)) continue;
      read_.insert(key);
      turns_.AddBeside(key, Keep(std::string(simdjson::minify(value))));
    }
    const auto add = [this](const object& from, const std::string& field) {
      element value;
      if (from.at_key(field).get(value) != SUCCESS) return false;
      turns_.AddBeside(field, Keep(std::string(simdjson::minify(value))));
      return true;
    };
    for (const std::string& field : reader_.fields_) {
      object json;
      if (!add(root_, field) && root_.at_key("json").get(json) == SUCCESS) {
        add(json, field);
      }
    }
  }

  static constexpr size_t kNext = static_cast<size_t>(-1);

  const FormReader& reader_;
  const v1::Source::Form& form_;
  const RecipeRecord& record_;
  simdjson::dom::parser parser_;
  std::deque<simdjson::dom::parser> parsers_;  // of texts of turns
  object root_;
  FormSample result_;
  std::set<std::string> read_;
  std::vector<Found> images_, videos_, audios_, in_parts_;
  uint64_t media_bytes_ = 0;
  std::deque<std::string> texts_;
  TurnsJson turns_;
  size_t marks_ = 0;
  // The image of each mark: a number, or the next one.
  std::vector<size_t> places_;
  bool numbered_ = false;
};

absl::StatusOr<FormReader> FormReader::Create(const v1::Source::Form& form,
                                              std::vector<std::string> fields) {
  FormReader reader;
  BALLAST_ASSIGN_OR_RETURN(reader.form_, CompleteForm(form));
  const v1::Source::Form& whole = reader.form_;
  reader.fields_ = std::move(fields);
  BALLAST_RETURN_IF_ERROR(ParseKeys("images", whole.images(), &reader.images_));
  BALLAST_RETURN_IF_ERROR(ParseKeys("videos", whole.videos(), &reader.videos_));
  BALLAST_RETURN_IF_ERROR(ParseKeys("audios", whole.audios(), &reader.audios_));
  BALLAST_RETURN_IF_ERROR(
      ParseKeys("messages", whole.messages(), &reader.messages_));
  BALLAST_RETURN_IF_ERROR(ParseKeys("user", whole.user(), &reader.user_));
  BALLAST_RETURN_IF_ERROR(
      ParseKeys("assistant", whole.assistant(), &reader.assistant_));
  const auto one = [](const std::string& text) {
    return std::vector<std::string>{text};
  };
  BALLAST_RETURN_IF_ERROR(
      ParseKeys("system", one(whole.system()), &reader.system_));
  BALLAST_RETURN_IF_ERROR(
      ParseKeys("history", one(whole.history()), &reader.history_));
  BALLAST_RETURN_IF_ERROR(ParseKeys("text", one(whole.text()), &reader.text_));
  const bool has_sides = !reader.user_.empty() && !reader.assistant_.empty();
  const int kinds = (reader.messages_.empty() ? 0 : 1) + (has_sides ? 1 : 0) +
                    (reader.text_.empty() ? 0 : 1);
  if (kinds != 1 || reader.user_.empty() != reader.assistant_.empty()) {
    return absl::InvalidArgumentError(
        "form: wanted one of `messages`, `user` with `assistant`, and `text`");
  }
  return reader;
}

absl::StatusOr<FormSample> FormReader::Read(const RecipeRecord& record) const {
  return FormEvaluation(this, &record).Evaluate();
}

}  // namespace ballast
