#include "server/data/form/form.h"

#include <algorithm>
#include <initializer_list>
#include <list>
#include <string_view>
#include <utility>

#include <simdjson.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "server/data/form/form_marks.h"
#include "server/data/form/form_media.h"
#include "server/data/form/form_path.h"
#include "server/data/form/form_record.h"
#include "server/data/form/form_sample.h"
#include "server/data/form/forms.h"
#include "server/data/form/unread.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/document_json.h"
#include "server/data/jsonl/media_root.h"
#include "server/recipe/turns_json.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;
using Key = FormPaths;

}  // namespace

// The evaluation of a form over one record.
class FormEvaluation {
 public:
  FormEvaluation(const FormReader* reader, const RecipeRecord* record)
      : reader_(*reader),
        form_(reader->form_),
        given_(*record),
        record_(&reader->form_, &reader->fields_, record),
        media_(record->parts.size()),
        marks_(&reader->form_) {}

  absl::StatusOr<FormSample> Evaluate() {
    BALLAST_RETURN_IF_ERROR(record_.Parse());
    BALLAST_RETURN_IF_ERROR(ReadMedia());
    BALLAST_RETURN_IF_ERROR(reader_.text_.empty() ? ReadConversation()
                                                  : ReadDocument());
    MediaOfSample media = MediaOf(result_.sample);
    if (!reader_.user_.empty()) media.question = std::move(question_);
    BALLAST_RETURN_IF_ERROR(CheckEveryKey(
        record_.root(), media,
        [this](const std::string& path) { return record_.UseOf(path); }));
    CookedSample& sample = result_.sample;
    sample.hash = HashOf(&sample);
    result_.media = media_.TakeBytes();
    result_.used = record_.TakeUses();
    return std::move(result_);
  }

 private:
  absl::Status Fault(absl::string_view reason) const {
    return DataFaultError(reason);
  }

  // Checks the keys of a turn or part beside those that are read.
  absl::Status CheckOtherKeys(const object& of, const char* what,
                              std::initializer_list<const char*> read) const {
    if (of.size() <= read.size() && of.size() <= 2) return absl::OkStatus();
    const auto use = [&](const std::string& path) {
      const auto& ignored = form_.ignore();
      return std::count(read.begin(), read.end(), path) > 0 ||
                     std::count(ignored.begin(), ignored.end(), path) > 0 ||
                     record_.IsReadOfTurns(path)
                 ? KeyUse::kRead
                 : KeyUse::kUnread;
    };
    return Annotate(CheckEveryKey(of, MediaOfSample(), use), what);
  }

  // Rows of addresses have no files yet.
  absl::Status CheckNoAddress(const std::string& name,
                              const CookedSample::Video& medium) const {
    const auto* path = std::get_if<std::string>(&medium.parts[0]);
    if (path == nullptr || !absl::StrContains(*path, "://")) {
      return absl::OkStatus();
    }
    const std::string kind = name.substr(0, name.size() - 1);
    const absl::Status fault = CheckMediaPath(kind, *path);
    if (fault.ok() || kind != "image") return fault;
    return OfKind(
        DataFaultError(absl::StrCat(
            fault.message(), ", as by `img2dataset --url_list FILE --url_col ",
            record_.LastRead(name),
            " --output_format webdataset --output_folder FOLDER`")),
        std::string(GetBadKind(fault)));
  }

  absl::Status ReadKeysOf(const char* name, const std::vector<Key>& keys,
                          std::vector<FormMedium>* found) {
    for (size_t entry = 0; entry < keys.size(); ++entry) {
      const std::vector<element> values =
          record_.Find(name, keys, entry, [](const element& value) {
            return value.is_string() || value.is_object() || value.is_array();
          });
      for (const element& value : values) {
        const size_t before = found->size();
        absl::Status added = media_.AddMedia(name, value, found);
        for (size_t i = before; added.ok() && i < found->size(); ++i) {
          added = CheckNoAddress(name, (*found)[i].medium);
        }
        if (!added.ok()) {
          return Annotate(added,
                          absl::StrCat("`", record_.LastRead(name), "`"));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadMedia() {
    BALLAST_RETURN_IF_ERROR(
        ReadKeysOf("images", reader_.images_, &marks_.images()));
    BALLAST_RETURN_IF_ERROR(ReadKeysOf("videos", reader_.videos_, &videos_));
    BALLAST_RETURN_IF_ERROR(ReadKeysOf("audios", reader_.audios_, &audios_));
    return absl::OkStatus();
  }

  absl::Status ReadDocument() {
    const auto is_text = [](const element& value) { return value.is_string(); };
    const std::vector<element> values =
        record_.Find("text", reader_.text_, 0, is_text);
    if (values.empty()) return record_.Missing("text", reader_.text_);
    std::vector<std::string> texts;
    for (const element& value : values) {
      const absl::string_view given = View(value.get_string().value_unsafe());
      BALLAST_RETURN_IF_ERROR(
          CheckNoRecordWithin(record_.LastRead("text"), given));
      BALLAST_ASSIGN_OR_RETURN(const absl::string_view text,
                               marks_.Marked(given));
      texts.emplace_back(text);
    }
    BALLAST_ASSIGN_OR_RETURN(result_.sample.images, marks_.OrderImages());
    AddVideos();
    CookedSample& sample = result_.sample;
    sample.is_document = true;
    if (!marks_.HasPlaces()) {
      for (size_t i = 0; i < sample.images.size(); ++i) {
        sample.text += "<image>";
      }
      for (const CookedSample::Video& video : sample.videos) {
        sample.text += video.is_audio ? "<audio>" : "<video>";
      }
    }
    sample.text += absl::StrJoin(texts, "\n");
    if (!reader_.fields_.empty()) {
      sample.fields = given_.kind == RecipeRecord::Kind::kMembers
                          ? MembersFields()
                          : given_.text;
    }
    return absl::OkStatus();
  }

  std::string MembersFields() const {
    element json;
    return record_.root().at_key("json").get(json) == SUCCESS &&
                   json.is_object()
               ? std::string(simdjson::minify(json))
               : "";
  }

  void AddVideos() {
    for (std::vector<FormMedium>* media : {&videos_, &audios_}) {
      for (FormMedium& one : *media) {
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
                               marks_.Marked(View(text)));
      turns_.AddTurn(role, made);
    } else if (content.get(parts) == SUCCESS) {
      turns_.BeginTurn(role);
      for (const element part : parts) {
        BALLAST_RETURN_IF_ERROR(AddPart(part));
      }
    } else {
      return Fault(absl::StrCat("found ", KindOf(content),
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
                               marks_.Marked(View(text)));
      turns_.AddText(made);
      return absl::OkStatus();
    }
    if (part.get(map) != SUCCESS) {
      return Fault(absl::StrCat("found ", KindOf(part),
                                " as a part of a turn; wanted a text or a "
                                "struct with `type`"));
    }
    element value;
    if (map.at_key("type").get(type) != SUCCESS) {
      for (const char* each :
           {"text", "image", "image_url", "video", "inlineData"}) {
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
      BALLAST_RETURN_IF_ERROR(CheckOtherKeys(
          map, "a part of type text", {"type", "text", "content", "value"}));
      BALLAST_ASSIGN_OR_RETURN(const absl::string_view made,
                               marks_.Marked(View(text)));
      turns_.AddText(made);
      return absl::OkStatus();
    }
    if (type == "image" || type == "image_url" || type == "input_image" ||
        type == "inlineData") {
      return AddImagePart(map);
    }
    return Fault(absl::StrCat(
        "a part of type ", Printable(View(type)),
        " in a form; wanted text and image; of others take the format's own "
        "form or a recipe"));
  }

  absl::Status AddImagePart(const object& part) {
    BALLAST_RETURN_IF_ERROR(CheckOtherKeys(
        part, "a part of type image",
        {"type", "image", "image_url", "path", "url", "bytes", "data", "source",
         "content", "value", "base64", "inlineData", "index"}));
    if (std::string_view text;
        part.at_key("text").get(text) == SUCCESS && !text.empty()) {
      return Fault(
          "`text` in a part of type image, which would not be learnt; wanted "
          "a part of type text for it");
    }
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
      BALLAST_RETURN_IF_ERROR(CheckImageIndex(index, marks_.places()));
    }
    turns_.AddPart("image");
    marks_.AddPart();
    std::vector<FormMedium> found;
    for (const char* key :
         {"image", "image_url", "path", "url", "bytes", "data", "source",
          "content", "value", "base64", "inlineData"}) {
      element value;
      if (part.at_key(key).get(value) != SUCCESS || IsEmptyValue(value) ||
          value.is_number()) {
        continue;
      }
      BALLAST_RETURN_IF_ERROR(Annotate(media_.AddMedia("image", value, &found),
                                       "a part of type image"));
      break;
    }
    if (found.size() > 1) {
      return Fault("a part of type image with several images");
    }
    if (!found.empty()) {
      marks_.AddOwnImage(std::move(found[0]));
      return absl::OkStatus();
    }
    marks_.AddNextPlace();
    return absl::OkStatus();
  }

  absl::Status AddTurns(const array& list) {
    for (const element item : list) {
      object turn;
      if (item.get(turn) != SUCCESS) {
        return Fault(absl::StrCat("found ", KindOf(item),
                                  " as a turn; wanted a struct with a role and "
                                  "a content"));
      }
      // The Cauldron's and FineVision's pairs, and ms-swift's.
      const bool is_swift = turn.at_key("human").error() == SUCCESS;
      const char* const asks = is_swift ? "human" : "user";
      element asked, said;
      if (turn.at_key(asks).get(asked) == SUCCESS &&
          turn.at_key("assistant").get(said) == SUCCESS && asked.is_string() &&
          said.is_string()) {
        has_pairs_ = !is_swift;
        BALLAST_RETURN_IF_ERROR(AddTurn("user", asked));
        BALLAST_RETURN_IF_ERROR(AddTurn("assistant", said));
        BALLAST_RETURN_IF_ERROR(
            CheckOtherKeys(turn, "a pair of turns", {asks, "assistant"}));
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
      const bool has_content =
          FindIn(turn, form_.content_key(),
                 {"content", "value", "text", "utterance", "parts"}, &content,
                 &content_key) &&
          !content.is_null();
      element calls;
      const auto has = [&](const char* key) {
        return turn.at_key(key).get(calls) == SUCCESS && !IsEmptyValue(calls);
      };
      const bool is_bare =
          !has_content && (has("tool_calls") || has("function_call"));
      if (!has_content && !is_bare) {
        return Fault(
            absl::StrCat("a turn without a content; wanted ",
                         form_.content_key().empty()
                             ? "`content` or `value`"
                             : absl::StrCat("`", form_.content_key(), "`"),
                         "; name its key in form.content_key"));
      }
      if (is_bare) {
        turns_.AddBareTurn(RoleOf(role_text));
      } else {
        BALLAST_RETURN_IF_ERROR(AddTurn(RoleOf(role_text), content));
      }
      // Weights and masks of turns are those of the text builder, below.
      BALLAST_RETURN_IF_ERROR(CheckOtherKeys(
          turn, "a turn",
          {role_key.c_str(), content_key.c_str(), "weight", "loss",
           "tool_calls", "function_call", "reasoning_content"}));
      for (const auto& [key, value] : turn) {
        if (View(key) == role_key || View(key) == content_key ||
            value.is_null()) {
          continue;
        }
        // Weights, reasoning, calls of tools: server/text reads or refuses
        // them.
        turns_.AddKey(View(key),
                      marks_.Keep(std::string(simdjson::minify(value))));
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
    return Fault(absl::StrCat("found ", KindOf(value),
                              " as turns; wanted a list of them"));
  }

  absl::Status ReadHistory() {
    if (reader_.history_.empty()) return absl::OkStatus();
    const std::vector<element> values =
        record_.Find("history", reader_.history_, 0,
                     [](const element& value) { return value.is_array(); });
    for (const element& value : values) {
      if (IsTurns(value, form_.role_key())) {
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
              "found ", KindOf(item),
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
          record_.Find(name, keys, entry, [this](const element& value) {
            return value.is_string() || value.is_number() ||
                   IsTurns(value, form_.role_key());
          });
      for (const element& value : values) {
        is_found = true;
        if (IsTurns(value, form_.role_key())) {
          BALLAST_RETURN_IF_ERROR(AddTurns(value));
        } else if (value.is_number()) {
          texts.push_back(std::string(simdjson::minify(value)));
        } else {
          BALLAST_ASSIGN_OR_RETURN(
              const absl::string_view text,
              marks_.Marked(View(value.get_string().value_unsafe())));
          texts.emplace_back(text);
        }
      }
    }
    if (!is_found) return record_.Missing(name, keys);
    if (texts.empty()) return absl::OkStatus();
    const absl::string_view text = marks_.Keep(absl::StrJoin(texts, "\n"));
    if (role == "user") question_ = std::string(text);
    turns_.AddTurn(role, text);
    return absl::OkStatus();
  }

  absl::Status ReadConversation() {
    if (!reader_.system_.empty()) {
      const std::vector<element> values =
          record_.Find("system", reader_.system_, 0,
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
        std::vector<element> values = record_.Find(
            "messages", reader_.messages_, i, [](const element& value) {
              std::string_view text;
              return value.is_array() ||
                     (value.get(text) == SUCCESS &&
                      absl::StartsWith(
                          absl::StripLeadingAsciiWhitespace(View(text)), "["));
            });
        if (values.size() == 1 && turns_.IsEmpty() && SaysTheSame(values[0])) {
          return TakeAsItIs();
        }
        for (const element& value : values) {
          is_found = true;
          BALLAST_RETURN_IF_ERROR(
              Annotate(AddTurns(value),
                       absl::StrCat("`", record_.LastRead("messages"), "`")));
        }
      }
      if (!is_found) return record_.Missing("messages", reader_.messages_);
      BALLAST_RETURN_IF_ERROR(CheckImagesHavePlaces());
    }
    BALLAST_RETURN_IF_ERROR(TakeImagesOfParts());
    BALLAST_ASSIGN_OR_RETURN(result_.sample.images, marks_.OrderImages());
    AddVideos();
    AddBeside();
    BALLAST_ASSIGN_OR_RETURN(
        result_.sample.text,
        std::move(turns_).Finish(result_.sample.images.size(), videos_.size(),
                                 audios_.size()));
    return absl::OkStatus();
  }

  // Whether the format's own reading makes the same of a line: turns of texts
  // under a key of its own, of its own roles, with its own marks, and nothing
  // beside them that it would read otherwise. Most conversations are such.
  bool SaysTheSame(const element& value) const {
    constexpr absl::string_view kBeside[] = {"system",    "tools",  "functions",
                                             "documents", "tokens", "prompt"};
    constexpr absl::string_view kTurns[] = {"messages", "conversations",
                                            "conversation"};
    array list;
    if (given_.kind != RecipeRecord::Kind::kLine ||
        // Media as text stay out of what is kept.
        given_.text.size() > kMaxTextBytes || media_.HasBytes() ||
        reader_.messages_.size() > 1 || !videos_.empty() || !audios_.empty() ||
        value.get(list) != SUCCESS || list.size() == 0) {
      return false;
    }
    size_t turns = 0;
    for (const auto& [key, unused] : record_.root()) {
      const absl::string_view name = View(key);
      turns += std::count(std::begin(kTurns), std::end(kTurns), name);
      if (std::count(std::begin(kBeside), std::end(kBeside), name) > 0 ||
          absl::StartsWith(name, "chosen") ||
          absl::StartsWith(name, "rejected")) {
        return false;
      }
    }
    const std::string& read = record_.LastUse();
    if (turns != 1 ||
        std::count(std::begin(kTurns), std::end(kTurns), read) == 0) {
      return false;
    }
    size_t marks = 0;
    for (const element item : list) {
      object turn;
      std::string_view role, text;
      if (item.get(turn) != SUCCESS || turn.size() != 2) return false;
      const bool is_share = turn.at_key("from").get(role) == SUCCESS;
      if ((!is_share && turn.at_key("role").get(role) != SUCCESS) ||
          turn.at_key(is_share ? "value" : "content").get(text) != SUCCESS ||
          !IsOwnKey(form_.role_key(), is_share ? "from" : "role") ||
          !IsOwnKey(form_.content_key(), is_share ? "value" : "content")) {
        return false;
      }
      const absl::string_view own = role == "human" ? "user"
                                    : role == "gpt" ? "assistant"
                                                    : View(role);
      if ((own != "user" && own != "assistant") || RoleOf(role) != own) {
        return false;
      }
      const int found = marks_.CountOwn(View(text));
      if (found < 0 || (found > 0 && own != "user")) return false;
      marks += found;
    }
    return marks == marks_.images().size();
  }

  static bool IsOwnKey(const std::string& key, absl::string_view name) {
    return key.empty() || key == name;
  }

  absl::Status TakeAsItIs() {
    for (const FormMedium& image : marks_.images()) {
      result_.sample.images.push_back(image.medium.parts[0]);
    }
    result_.sample.text = record_.TakeJson();
    return absl::OkStatus();
  }

  // In rows images without a mark come first, as the format has it, and so do
  // those of pairs, which have none; turns of a line say where their images
  // are.
  absl::Status CheckImagesHavePlaces() const {
    if (given_.kind == RecipeRecord::Kind::kRow || has_pairs_ ||
        marks_.images().empty() || marks_.HasPlaces()) {
      return absl::OkStatus();
    }
    return Fault(absl::StrCat(
        marks_.images().size(),
        marks_.images().size() == 1 ? " image" : " images",
        " and no mark in the turns; write <image> where each stands, or name "
        "the mark that stands there in form.marks.image"));
  }

  absl::Status TakeImagesOfParts() {
    if (!marks_.HasOwnImages()) return absl::OkStatus();
    if (!marks_.images().empty()) {
      return Fault(
          "images in the turns and under a key beside them; "
          "wanted one of the two: leave the key out of form.images, and name "
          "it in form.ignore");
    }
    marks_.TakeOwnImages();
    return absl::OkStatus();
  }

  // The numbers that travel with the sample; tools and documents, which the
  // checkpoint's own template writes.
  void AddBeside() {
    for (const char* key : {"tools", "documents"}) {
      element value;
      std::string path = key;
      object json;
      bool has = record_.root().at_key(key).get(value) == SUCCESS;
      if (!has && given_.kind == RecipeRecord::Kind::kMembers &&
          record_.root().at_key("json").get(json) == SUCCESS) {
        path = absl::StrCat("json.", key);
        has = json.at_key(key).get(value) == SUCCESS;
      }
      if (!has || IsEmptyValue(value)) continue;
      record_.MarkRead(path);
      turns_.AddBeside(key, marks_.Keep(std::string(simdjson::minify(value))));
    }
    const auto add = [this](const object& from, const std::string& field) {
      element value;
      if (from.at_key(field).get(value) != SUCCESS) return false;
      turns_.AddBeside(field,
                       marks_.Keep(std::string(simdjson::minify(value))));
      return true;
    };
    for (const std::string& field : reader_.fields_) {
      object json;
      if (!add(record_.root(), field) &&
          record_.root().at_key("json").get(json) == SUCCESS) {
        add(json, field);
      }
    }
  }

  const FormReader& reader_;
  const v1::Source::Form& form_;
  const RecipeRecord& given_;
  FormRecord record_;
  FormMedia media_;
  FormMarks marks_;
  std::list<simdjson::dom::parser> parsers_;  // of texts of turns
  FormSample result_;
  std::string question_;
  bool has_pairs_ = false;  // of a question and its answer, as turns
  std::vector<FormMedium> videos_, audios_;
  TurnsJson turns_;
};

absl::StatusOr<FormReader> FormReader::Create(const v1::Source::Form& form,
                                              std::vector<std::string> fields) {
  FormReader reader;
  BALLAST_ASSIGN_OR_RETURN(reader.form_, CompleteForm(form));
  const v1::Source::Form& whole = reader.form_;
  reader.fields_ = std::move(fields);
  BALLAST_RETURN_IF_ERROR(
      ParseFormKeys("images", whole.images(), &reader.images_));
  BALLAST_RETURN_IF_ERROR(
      ParseFormKeys("videos", whole.videos(), &reader.videos_));
  BALLAST_RETURN_IF_ERROR(
      ParseFormKeys("audios", whole.audios(), &reader.audios_));
  BALLAST_RETURN_IF_ERROR(
      ParseFormKeys("messages", whole.messages(), &reader.messages_));
  BALLAST_RETURN_IF_ERROR(ParseFormKeys("user", whole.user(), &reader.user_));
  BALLAST_RETURN_IF_ERROR(
      ParseFormKeys("assistant", whole.assistant(), &reader.assistant_));
  const auto one = [](const std::string& text) {
    return std::vector<std::string>{text};
  };
  BALLAST_RETURN_IF_ERROR(
      ParseFormKeys("system", one(whole.system()), &reader.system_));
  BALLAST_RETURN_IF_ERROR(
      ParseFormKeys("history", one(whole.history()), &reader.history_));
  BALLAST_RETURN_IF_ERROR(
      ParseFormKeys("text", one(whole.text()), &reader.text_));
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
