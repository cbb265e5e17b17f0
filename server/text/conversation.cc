#include "server/text/conversation.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include <simdjson.h>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// Debian's absl::string_view is not std::string_view.
absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

// What only a checkpoint's own template writes.
template <typename... Piece>
absl::Status ForOwnTemplate(const Piece&... pieces) {
  return OfKind(DataFaultError(absl::StrCat(pieces...)), kForOwnTemplate);
}

constexpr char kUseOwn[] =
    "name model.chat_template: checkpoint, whose template may write it, or ";

// `key` is the key that held the name.
absl::StatusOr<Role> ParseRole(absl::string_view key, absl::string_view name) {
  if (name == "human" || name == "user") return Role::kUser;
  if (name == "gpt" || name == "assistant") return Role::kAssistant;
  if (name == "system" || name == "developer") return Role::kSystem;
  const std::string fault = absl::StrCat(
      "unknown `", key, "` \"", name,
      "\"; wanted human or user, gpt or assistant, system or developer");
  for (const absl::string_view own :
       {"tool", "function", "function_call", "observation", "ipython"}) {
    if (name == own) {
      return ForOwnTemplate(fault, ", or model.chat_template: checkpoint");
    }
  }
  return DataFaultError(fault);
}

absl::Status AddPart(element value, std::string* text, uint32_t* audios) {
  std::string_view type;
  if (value["type"].get(type) != SUCCESS) {
    return DataFaultError("not an object with a `type`");
  }
  if (type == "image" || type == "image_url") {
    absl::StrAppend(text, kImageMark);
    return absl::OkStatus();
  }
  if (type == "video" || type == "video_url") {
    absl::StrAppend(text, kVideoMark);
    return absl::OkStatus();
  }
  if (type == "audio") {
    ++*audios;
    absl::StrAppend(text, kAudioMark);
    return absl::OkStatus();
  }
  if (type != "text") {
    return DataFaultError(absl::StrCat(
        "type \"", View(type), "\" is not supported; wanted text, image, ",
        "image_url, video, video_url or audio"));
  }
  std::string_view said;
  if (value["text"].get(said) != SUCCESS) {
    return DataFaultError("`text` is missing or not a string");
  }
  absl::StrAppend(text, View(said));
  return absl::OkStatus();
}

// Sets the parts' counts of `parsed`.
absl::StatusOr<std::string> ParseContent(object turn, Turn* parsed) {
  std::string text;
  std::string_view whole;
  if (turn["content"].get(whole) == SUCCESS) return std::string(whole);
  parsed->of_parts = true;
  array parts;
  if (turn["content"].get(parts) != SUCCESS) {
    return DataFaultError(
        "`content` is missing, or neither a string nor a list of parts");
  }
  size_t number = 0;
  for (const element part : parts) {
    BALLAST_RETURN_IF_ERROR(Annotate(AddPart(part, &text, &parsed->audios),
                                     absl::StrCat("content part ", ++number)));
  }
  return text;
}

// Whether a text under this key is a remark, such as a loss that was measured.
bool IsFigure(absl::string_view key, absl::string_view text) {
  bool flag;
  return key == "loss" && !absl::SimpleAtob(text, &flag);
}

// The weight that `weight`, `loss` and `train` of a turn give it: OpenAI's,
// ms-swift's and Axolotl's names.
absl::StatusOr<float> GetWeight(object turn) {
  float weight = 1;
  for (const char* key : {"weight", "loss", "train"}) {
    element value;
    if (turn[key].get(value) != SUCCESS || value.is_null()) continue;
    bool flag = true;
    double number = 1;
    std::string_view said;
    if (value.get(flag) == SUCCESS) {
      number = flag ? 1 : 0;
    } else if (value.get(number) != SUCCESS) {
      const bool is_text = value.get(said) == SUCCESS;
      if (is_text && (said.empty() || IsFigure(key, View(said)))) continue;
      return DataFaultError(absl::StrCat(
          "`", key, "` is ",
          is_text ? absl::StrCat("'", Printable(View(said)), "'") : "no number",
          "; wanted 0 to 1"));
    }
    // Elsewhere other numbers are figures, such as a loss that was measured.
    const bool is_weight = absl::string_view(key) == "weight";
    if (!is_weight && number != 0) continue;
    if (!(number >= 0 && number <= 1)) {
      return DataFaultError(
          absl::StrCat("`", key, "` is ", number, "; wanted 0 to 1"));
    }
    weight = std::min(weight, static_cast<float>(number));
  }
  return weight;
}

// Refuses a key of a turn that says something.
absl::Status CheckSilent(object turn, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    element value;
    if (turn[key].get(value) != SUCCESS || value.is_null()) continue;
    std::string_view text;
    array list;
    if (value.get(text) == SUCCESS && text.empty()) continue;
    if (value.get(list) == SUCCESS && list.size() == 0) continue;
    return ForOwnTemplate(
        "`", key, "` is not written into the text, so it would not be learnt; ",
        kUseOwn, "put it into the content as the model writes it");
  }
  return absl::OkStatus();
}

absl::StatusOr<Turn> ParseTurnOfRole(object turn, Role role,
                                     absl::StatusOr<std::string> text) {
  if (!text.ok()) return text.status();
  Turn parsed = {role, *std::move(text)};
  if (role == Role::kAssistant) {
    BALLAST_ASSIGN_OR_RETURN(parsed.weight, GetWeight(turn));
    // Other keys of an answer would have to be learnt, too.
    BALLAST_RETURN_IF_ERROR(CheckSilent(
        turn, {"tool_calls", "function_call", "reasoning_content"}));
  }
  return parsed;
}

absl::StatusOr<Turn> ParseTurn(element value) {
  object turn;
  if (value.get(turn) != SUCCESS) {
    return DataFaultError("not an object");
  }
  std::string_view name;
  if (turn["from"].get(name) == SUCCESS) {
    BALLAST_ASSIGN_OR_RETURN(const Role role, ParseRole("from", View(name)));
    std::string_view said;
    if (turn["value"].get(said) != SUCCESS) {
      return DataFaultError("`value` is missing or not a string");
    }
    return ParseTurnOfRole(turn, role, std::string(said));
  }
  if (turn["role"].get(name) == SUCCESS) {
    BALLAST_ASSIGN_OR_RETURN(const Role role, ParseRole("role", View(name)));
    Turn of_content;
    BALLAST_ASSIGN_OR_RETURN(
        Turn parsed,
        ParseTurnOfRole(turn, role, ParseContent(turn, &of_content)));
    parsed.audios = of_content.audios;
    parsed.of_parts = of_content.of_parts;
    return parsed;
  }
  return DataFaultError("`from` or `role` is missing or not a string");
}

// Refuses what other trainers write before the turns.
absl::Status CheckBeside(element root,
                         std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    element value;
    if (root[key].get(value) != SUCCESS) continue;
    std::string_view text;
    array list;
    const bool says_something =
        value.get(text) == SUCCESS
            ? !text.empty() && text != "[]"
            : value.get(list) == SUCCESS && list.size() > 0;
    if (!says_something) continue;
    return ForOwnTemplate(
        "`", key,
        "` next to the turns is not read, so the text would be another; ",
        kUseOwn, "write it into a first turn of role system");
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
  }
  return "";
}

namespace {

// The turns of a conversation, and the parsers that hold them.
struct Parsed {
  simdjson::dom::parser parser;
  std::array<simdjson::dom::parser, 3> lists;  // of lists that are texts
  element root;
  array turns;
};

absl::Status Parse(absl::string_view json, Parsed* parsed) {
  element& root = parsed->root;
  if (const auto error =
          parsed->parser.parse(json.data(), json.size()).get(root);
      error != SUCCESS) {
    return DataFaultError(absl::StrCat("conversation is not valid JSON: ",
                                       simdjson::error_message(error)));
  }
  std::optional<array> list;
  size_t number = 0;
  for (const char* key : {"conversations", "messages", "conversation"}) {
    simdjson::dom::parser& inner = parsed->lists[number++];
    array found;
    std::string_view text;
    if (root[key].get(found) != SUCCESS &&
        (root[key].get(text) != SUCCESS ||
         inner.parse(text.data(), text.size()).get(found) != SUCCESS)) {
      continue;
    }
    const bool is_second =
        list.has_value() && list->size() > 0 && found.size() > 0;
    if (is_second) {
      return DataFaultError(
          "both `conversations` and `messages` may be meant; wanted one of the "
          "two");
    }
    if (!list.has_value() || found.size() > 0) list = found;
  }
  if (!list.has_value()) {
    return DataFaultError(
        "conversation is not an object with a list `conversations` or "
        "`messages`");
  }
  parsed->turns = *list;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Turn>> ParseConversation(absl::string_view json) {
  Parsed parsed;
  BALLAST_RETURN_IF_ERROR(Parse(json, &parsed));
  BALLAST_RETURN_IF_ERROR(CheckBeside(parsed.root, {"system", "tools"}));
  std::vector<Turn> turns;
  for (const element value : parsed.turns) {
    absl::StatusOr<Turn> turn = ParseTurn(value);
    if (!turn.ok()) {
      return Annotate(turn.status(), absl::StrCat("turn ", turns.size() + 1));
    }
    turns.push_back(*std::move(turn));
    turns.back().number = static_cast<uint32_t>(turns.size());
  }
  if (turns.empty()) {
    return DataFaultError("the conversation has no turns");
  }
  return turns;
}

absl::Status CheckAllIsRead(absl::string_view json) {
  Parsed parsed;
  // ParseConversation reports it.
  if (!Parse(json, &parsed).ok()) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(CheckBeside(parsed.root, {"functions", "documents"}));
  size_t number = 0;
  for (const element value : parsed.turns) {
    ++number;
    object turn;
    if (value.get(turn) != SUCCESS) continue;
    BALLAST_RETURN_IF_ERROR(
        Annotate(CheckSilent(turn, {"thinking", "reasoning"}),
                 absl::StrCat("turn ", number)));
  }
  return absl::OkStatus();
}

std::vector<absl::string_view> SplitAtImageMarks(absl::string_view text) {
  return absl::StrSplit(text, absl::ByString(kImageMark));
}

}  // namespace ballast
