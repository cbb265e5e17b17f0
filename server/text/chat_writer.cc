#include "server/text/chat_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "server/text/text_token.h"

namespace ballast {

namespace {

using Json = nlohmann::json;

// tokenizer_config.json lists the added tokens, at most a few MB.
constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr char kDefault[] = "default";

// The template of a file in JSON.
std::string GetTemplate(const std::string& file, absl::string_view wanted) {
  const Json json =
      Json::parse(file, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return "";
  const auto found = json.find("chat_template");
  if (found == json.end()) return "";
  if (found->is_string()) {
    return wanted == kDefault ? found->get<std::string>() : "";
  }
  if (!found->is_array()) return "";
  for (const Json& one : *found) {
    if (one.is_object() && one.value("name", Json()) == std::string(wanted) &&
        one.value("template", Json()).is_string()) {
      return one["template"].get<std::string>();
    }
  }
  return "";
}

}  // namespace

std::string OwnTemplate(const TemplateFiles& files, absl::string_view name) {
  if (!files.jinja.empty()) return name == kDefault ? files.jinja : "";
  const bool in_json = !GetTemplate(files.json, kDefault).empty();
  return GetTemplate(in_json ? files.json : files.tokenizer_config, name);
}

std::string TemplateFault(const v1::Chat* chat, absl::string_view own) {
  if (own.empty() || chat == nullptr) return "";
  for (const std::string& one : chat->own_has()) {
    if (!absl::StrContains(own, one)) {
      return absl::StrCat("lacks \"", one, "\"");
    }
  }
  for (const std::string& one : chat->own_lacks()) {
    if (absl::StrContains(own, one)) return absl::StrCat("has \"", one, "\"");
  }
  return "";
}

std::vector<std::string> TemplateWarnings(const v1::Model& model) {
  const std::string folder =
      model.tokenizer().substr(0, model.tokenizer().rfind('/') + 1);
  const auto read = [&](const char* name) {
    return ReadSmallFile(folder + name, kMaxBytes).value_or("");
  };
  if (model.tokenizer() == "bytes") return {};
  const std::string fault = TemplateFault(
      FindChat(model.chat_template()),
      OwnTemplate({read("chat_template.jinja"), read("chat_template.json"),
                   read("tokenizer_config.json")}));
  if (fault.empty()) return {};
  return {absl::StrCat(
      "model.chat_template: found ", model.chat_template(),
      ", where the template next to ", model.tokenizer(), " ", fault,
      ": the checkpoint writes conversations otherwise than the one that this "
      "template is of; compare `ballast-server inspect conversation` with it, "
      "and name another template or give a custom one (docs/families.md, "
      "\"Chat templates\")")};
}

namespace {

// A template in which only the role's name differs between turns.
v1::Chat WithNames(absl::string_view before_name, absl::string_view after_name,
                   const char* end, const char* suffix) {
  v1::Chat result;
  const auto fill = [&](Role role, v1::ChatTemplate::Turn* turn) {
    turn->set_prefix(absl::StrCat(before_name, RoleName(role), after_name));
    turn->set_end(end);
    turn->set_suffix(suffix);
  };
  fill(Role::kSystem, result.mutable_system());
  fill(Role::kUser, result.mutable_user());
  fill(Role::kAssistant, result.mutable_assistant());
  result.mutable_assistant()->set_supervised(true);
  return result;
}

// Python treats the ASCII separators as white space too.
bool IsPythonSpace(uint32_t code) {
  return IsWhiteSpace(code) || (code >= 0x1C && code <= 0x1F);
}

}  // namespace

v1::Chat GetChat(const v1::Model& model) {
  if (const v1::Chat* chat = FindChat(model.chat_template())) {
    return *chat;
  }
  if (model.chat_template() == "custom") {
    v1::Chat custom;
    custom.set_begin(model.custom_template().begin());
    *custom.mutable_system() = model.custom_template().system();
    *custom.mutable_user() = model.custom_template().user();
    *custom.mutable_assistant() = model.custom_template().assistant();
    custom.set_trim(model.custom_template().trim());
    return custom;
  }
  // The checkpoint's own template writes its texts itself.
  if (absl::StartsWith(model.chat_template(), "checkpoint")) return {};
  if (model.chat_template() == "llama3") {
    v1::Chat llama3 = WithNames("<|start_header_id|>", "<|end_header_id|>\n\n",
                                "<|eot_id|>", "");
    llama3.set_begin("<|begin_of_text|>");
    llama3.set_trim(true);
    return llama3;
  }
  return WithNames("<|im_start|>", "\n", "<|im_end|>", "\n");
}

std::string SystemPrompt(const v1::Model& model) {
  const v1::Chat* chat = FindChat(model.chat_template());
  return model.system_prompt().empty() && chat != nullptr
             ? chat->default_system()
             : model.system_prompt();
}

std::vector<const std::string*> GetTexts(const v1::Chat& chat) {
  std::vector<const std::string*> texts = {
      &chat.begin(),       &chat.image_before(), &chat.image_after(),
      &chat.text_before(), &chat.text_after(),   &chat.text_first(),
      &chat.part_seam(),   &chat.answer_first(), &chat.answer_before(),
      &chat.last_end()};
  for (const Role role : {Role::kSystem, Role::kUser, Role::kAssistant}) {
    const v1::ChatTemplate::Turn& turn = GetTurn(chat, role);
    texts.insert(texts.end(), {&turn.prefix(), &turn.end(), &turn.suffix()});
  }
  return texts;
}

const v1::ChatTemplate::Turn& GetTurn(const v1::Chat& chat, Role role) {
  if (role == Role::kSystem) return chat.system();
  return role == Role::kAssistant ? chat.assistant() : chat.user();
}

absl::string_view StripWhiteSpace(absl::string_view text) {
  while (!text.empty()) {
    const Utf8Character first = FirstCharacter(text);
    if (!IsPythonSpace(first.code)) break;
    text.remove_prefix(first.bytes);
  }
  while (!text.empty()) {
    const Utf8Character last = LastCharacter(text);
    if (!IsPythonSpace(last.code)) break;
    text.remove_suffix(last.bytes);
  }
  return text;
}

namespace {

using Kind = TextToken::Kind;

// Whether the assistant answers this turn.
bool IsQuestion(const Turn& turn) {
  if (turn.role != Role::kUser) return false;
  const absl::string_view text = StripWhiteSpace(turn.text);
  return !absl::StartsWith(text, "<tool_response>") ||
         !absl::EndsWith(text, "</tool_response>");
}

// What the template wants in place of a system turn, the conversation's
// `index`-th of `turns`; "" if it is as wanted.
absl::string_view WantedOfSystem(const v1::Chat& chat, size_t index,
                                 absl::Span<const Turn> turns) {
  const bool has_image = absl::StrContains(turns[index].text, kImageMark);
  if (chat.no_system()) return "no system turn";
  if ((chat.needs_question() || chat.system_first()) &&
      (index != 0 || has_image)) {
    return "a system turn only at the start, without images";
  }
  if (!chat.system_in_user()) return "";
  if (index != 0 || turns.size() == 1) {
    return "a system turn only before the first turn of the user";
  }
  return has_image ? "a system turn without images" : "";
}

// The same for a turn of the assistant. `after_answer`: it follows another.
std::string WantedOfAnswer(const v1::Chat& chat, absl::string_view text,
                           bool after_answer) {
  if (chat.answers_apart() && after_answer) {
    return "a turn of the user between two of the assistant";
  }
  if (chat.answers_have_no_images() && absl::StrContains(text, kImageMark)) {
    return "images in turns of the user alone";
  }
  for (const absl::string_view mark :
       {chat.thought_begin(), chat.thought_end()}) {
    if (mark.empty() || !absl::StrContains(text, mark)) continue;
    return absl::StrCat(
        "texts without ", mark,
        ", since it moves or drops thoughts: leave them out, or use "
        "chat_template: chatml or custom");
  }
  return "";
}

// The same for any turn.
std::string WantedOfTurn(const v1::Chat& chat, size_t index,
                         absl::Span<const Turn> turns) {
  const Turn& turn = turns[index];
  if (turn.role == Role::kSystem) {
    return std::string(WantedOfSystem(chat, index, turns));
  }
  const size_t place = index - (turns[0].role == Role::kSystem ? 1 : 0);
  if (chat.one_answer() && place > 1) {
    return "one question and its answer, since the text between two rounds "
           "is not known for certain: make each round a sample, or use "
           "chat_template: custom";
  }
  if (chat.alternates() && (place % 2 == 0) != (turn.role == Role::kUser)) {
    return "user and assistant in turn, the user first";
  }
  if (turn.role != Role::kAssistant) return "";
  const bool after_answer =
      index > 0 && turns[index - 1].role == Role::kAssistant;
  return WantedOfAnswer(chat, turn.text, after_answer);
}

absl::Status CheckOrder(absl::Span<const Turn> turns, const v1::Chat& chat,
                        absl::string_view name) {
  const bool has_question = std::any_of(turns.begin(), turns.end(), IsQuestion);
  if (chat.needs_question() && !has_question) {
    return DataFaultError(absl::StrCat(
        "no turn of the user asks; the chat template of ", name, " wants one"));
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    const std::string wanted = WantedOfTurn(chat, i, turns);
    if (wanted.empty()) continue;
    return DataFaultError(
        absl::StrCat("turn ", i + 1, " is of the ", RoleName(turns[i].role),
                     "; the chat template of ", name, " wants ", wanted));
  }
  return absl::OkStatus();
}

// Writes one conversation.
class ConversationWriter {
 public:
  ConversationWriter(const v1::Chat& chat, absl::Span<const ImagePieces> images,
                     TokenWriter* writer, bool notes_turns)
      : chat_(chat),
        images_(images),
        writer_(*writer),
        notes_turns_(notes_turns) {}

  void AddTurns(absl::Span<const Turn> turns) {
    writer_.AddTemplateText(chat_.begin(), Kind::kContext);
    if (chat_.texts_begin()) writer_.Begin();
    size_t answers = 0;  // the first turn after the last question
    for (size_t i = 0; i < turns.size(); ++i) {
      if (IsQuestion(turns[i])) answers = i + 1;
    }
    absl::string_view system;
    for (size_t i = 0; i < turns.size(); ++i) {
      if (i == 0 && turns[0].role == Role::kSystem && chat_.system_in_user()) {
        system = turns[0].text;
        continue;
      }
      AddTurn(turns[i], i == 0 ? nullptr : &turns[i - 1], i >= answers, system);
      system = {};
    }
    if (turns.empty() || turns.back().role != Role::kAssistant) return;
    writer_.AddTemplateText(chat_.last_end(),
                            IsLearnt(turns.back(), /*answers=*/true)
                                ? Kind::kSupervised
                                : Kind::kContext);
  }

 private:
  // `answers`: the turn follows the last question.
  bool IsLearnt(const Turn& turn, bool answers) const {
    return GetTurn(chat_, turn.role).supervised() && turn.weight > 0 &&
           (answers || !chat_.last_answer_alone());
  }

  // `before`: the turn before; null: no turn.
  void AddTurn(const Turn& turn, const Turn* before, bool answers,
               absl::string_view system) {
    const bool is_first = before == nullptr;
    const bool ends_answer =
        before != nullptr && before->role == Role::kAssistant;
    const v1::ChatTemplate::Turn& form = GetTurn(chat_, turn.role);
    const bool is_answer = turn.role == Role::kAssistant;
    const Kind said =
        IsLearnt(turn, answers) ? Kind::kSupervised : Kind::kContext;
    absl::string_view prefix = form.prefix();
    if (ends_answer && turn.role == Role::kUser &&
        !chat_.answer_stop().empty() &&
        absl::ConsumePrefix(&prefix, chat_.answer_stop())) {
      // The answer's end, as the model writes it. A template with an end of the
      // last answer learns that one here, too.
      writer_.AddTemplateText(chat_.answer_stop(),
                              !IsLearnt(*before, /*answers=*/false)
                                  ? Kind::kContext
                              : chat_.last_end().empty() ? Kind::kSupervised
                                                         : Kind::kEnd);
    }
    if (notes_turns_) writer_.SetTurn(turn.number);
    absl::string_view learnt_space;
    if (chat_.texts_begin() && is_answer) {
      const size_t kept = absl::StripTrailingAsciiWhitespace(prefix).size();
      learnt_space = prefix.substr(kept);
      prefix = prefix.substr(0, kept);
    }
    writer_.AddTemplateText(prefix, Kind::kContext);
    writer_.AddTemplateText(learnt_space, said);
    if (answers && is_answer) {
      writer_.AddTemplateText(chat_.answer_first(), Kind::kContext);
    }
    if (!system.empty()) {
      writer_.AddText(absl::StrCat(system, "\n\n"), Kind::kContext);
    }
    std::vector<absl::string_view> texts = SplitAtImageMarks(turn.text);
    if (chat_.trim() || (chat_.trim_answer() && is_answer)) {
      TrimEnds(&texts);
    }
    const size_t images = texts.size() - 1;
    const bool moves_one =
        chat_.only_image_first() && images == 1 && !texts[0].empty();
    std::string moved;
    if (moves_one || (chat_.images_on_lines() && images > 0)) {
      moved = absl::StrJoin(texts, "");
      const absl::string_view kept = StripWhiteSpace(moved);
      moved = kept.empty() ? "" : absl::StrCat("\n", kept);
      texts.assign(images, "\n");
      texts[0] = "";
      texts.push_back(moved);
    }
    if (chat_.trim_texts() ||
        (chat_.trim_system() && is_first && turn.role == Role::kSystem)) {
      for (absl::string_view& text : texts) text = StripWhiteSpace(text);
    }
    if (is_answer && (texts.size() > 1 || !texts[0].empty())) {
      writer_.AddTemplateText(chat_.answer_before(), Kind::kContext);
    }
    const bool begins_with_image = texts.size() > 1 && texts[0].empty();
    if (!begins_with_image)
      writer_.AddTemplateText(chat_.text_first(), Kind::kContext);
    if (chat_.images_first()) {
      AddImagesAndVideos(images, turn, absl::StrJoin(texts, ""));
    }
    bool has_part = false;
    const auto add_seam = [&] {
      if (has_part) writer_.AddTemplateText(chat_.part_seam(), said);
      has_part = true;
    };
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0 && !chat_.images_first()) {
        add_seam();
        AddImagesAndVideos(1, turn, texts[i]);
      }
      if (texts[i].empty()) continue;
      add_seam();
      writer_.AddTemplateText(chat_.text_before(), said);
      writer_.AddText(texts[i], said);
      writer_.AddTemplateText(chat_.text_after(), said);
    }
    writer_.AddTemplateText(form.end(), said);
    writer_.AddTemplateText(form.suffix(), Kind::kContext);
  }

  // Strips the white space before the first text and after the last.
  static void TrimEnds(std::vector<absl::string_view>* texts) {
    for (absl::string_view* text : {&texts->front(), &texts->back()}) {
      const absl::string_view kept = StripWhiteSpace(*text);
      const bool is_first = text == &texts->front();
      const bool is_last = text == &texts->back();
      const char* begin = is_first ? kept.data() : text->data();
      const char* end =
          (is_last ? kept : *text).data() + (is_last ? kept : *text).size();
      *text = kept.empty() ? "" : absl::string_view(begin, end - begin);
    }
  }

  // Whether `image_after` follows an image of `turn` that `text` follows.
  bool IsEnded(const Turn& turn, absl::string_view text) const {
    if (chat_.image_after_at() == v1::Chat::IMAGE_AFTER_UNSPECIFIED) {
      return true;
    }
    if (chat_.image_after_at() == v1::Chat::IMAGE_AFTER_PARTS &&
        !turn.of_parts) {
      return false;
    }
    return !absl::StartsWith(text, chat_.image_after());
  }

  // Adds the next `count` of `turn`, images before videos; `text` follows the
  // last.
  void AddImagesAndVideos(size_t count, const Turn& turn,
                          absl::string_view text) {
    const auto next = images_.subspan(next_image_, count);
    size_t added = 0;
    for (const bool videos : {false, true}) {
      for (const ImagePieces& pieces : next) {
        const bool is_video =
            std::any_of(pieces.begin(), pieces.end(),
                        [](const ImageTextPiece& p) { return p.is_video; });
        if (is_video != videos) continue;
        writer_.AddText(
            absl::StrReplaceAll(chat_.image_before(),
                                {{"{number}", absl::StrCat(++written_)}}),
            Kind::kContext);
        writer_.AddImage(pieces);
        if (chat_.texts_begin()) writer_.Begin();
        if (IsEnded(turn, ++added == count ? text : "")) {
          writer_.AddTemplateText(chat_.image_after(), Kind::kContext);
        }
      }
    }
    next_image_ += count;
  }

  const v1::Chat& chat_;
  const absl::Span<const ImagePieces> images_;
  TokenWriter& writer_;
  const bool notes_turns_;
  size_t next_image_ = 0;
  size_t written_ = 0;
};

}  // namespace

absl::Status WriteConversation(absl::Span<const Turn> turns,
                               absl::Span<const ImagePieces> images,
                               const v1::Chat& chat, absl::string_view name,
                               TokenWriter* writer, bool notes_turns) {
  BALLAST_RETURN_IF_ERROR(CheckOrder(turns, chat, name));
  size_t marks = 0;
  for (const Turn& turn : turns) {
    marks += SplitAtImageMarks(turn.text).size() - 1;
  }
  BALLAST_RETURN_IF_ERROR(CheckMarks(marks, images.size()));
  ConversationWriter(chat, images, writer, notes_turns).AddTurns(turns);
  return absl::OkStatus();
}

absl::Status CheckMarks(size_t marks, size_t images) {
  if (marks == images) return absl::OkStatus();
  return DataFaultError(absl::StrCat("text has ", marks, " ", kImageMark,
                                     " marks, the sample has ", images,
                                     " images; each mark is one image"));
}

}  // namespace ballast
