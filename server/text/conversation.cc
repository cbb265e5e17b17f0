#include "server/text/conversation.h"

#include <string_view>
#include <utility>

#include <simdjson.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

// Debian's absl::string_view is a type of its own.
absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

using ::simdjson::SUCCESS;
using ::simdjson::dom::array;
using ::simdjson::dom::element;
using ::simdjson::dom::object;

// `key` is the key that held the name.
absl::StatusOr<Role> ParseRole(absl::string_view key, absl::string_view name) {
  if (name == "human" || name == "user") return Role::kUser;
  if (name == "gpt" || name == "assistant") return Role::kAssistant;
  if (name == "system" || name == "developer") return Role::kSystem;
  return DataFaultError(absl::StrCat("unknown `", key, "` \"", name,
                                     "\"; wanted human or user, gpt or ",
                                     "assistant, system or developer"));
}

absl::Status AddPart(element value, std::string* text) {
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
  if (type != "text") {
    return DataFaultError(absl::StrCat(
        "type \"", View(type), "\" is not supported; wanted text, image, ",
        "image_url, video or video_url"));
  }
  std::string_view said;
  if (value["text"].get(said) != SUCCESS) {
    return DataFaultError("`text` is missing or not a string");
  }
  absl::StrAppend(text, View(said));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ParseContent(object turn) {
  std::string text;
  std::string_view whole;
  if (turn["content"].get(whole) == SUCCESS) return std::string(whole);
  array parts;
  if (turn["content"].get(parts) != SUCCESS) {
    return DataFaultError(
        "`content` is missing, or neither a string nor a list of parts");
  }
  size_t number = 0;
  for (const element part : parts) {
    BALLAST_RETURN_IF_ERROR(Annotate(AddPart(part, &text),
                                     absl::StrCat("content part ", ++number)));
  }
  return text;
}

// Whether `value`, of a turn's `weight`, `loss` or `train`, says that the turn
// counts less than others.
bool CountsLess(absl::string_view key, element value) {
  bool flag = true;
  double number = 1;
  if (value.get(flag) == SUCCESS) return !flag;
  if (value.get(number) != SUCCESS) return false;
  // Elsewhere other numbers are figures, such as a loss that was measured.
  return key == "weight" ? number != 1 : number == 0;
}

// Refuses a turn that says of itself that it is not to be learnt, or has more
// to be learnt than its text. `turn` is the assistant's.
absl::Status CheckLearnt(object turn) {
  // OpenAI's, ms-swift's and Axolotl's names.
  for (const char* key : {"weight", "loss", "train"}) {
    element value;
    if (turn[key].get(value) != SUCCESS || !CountsLess(key, value)) continue;
    return DataFaultError(absl::StrCat(
        "`", key, "` is ", std::string(simdjson::minify(value)).substr(0, 40),
        ", and every turn of an assistant is learnt whole; write the sample as "
        "token ids with labels, or remove the key"));
  }
  for (const char* key : {"tool_calls", "function_call", "reasoning_content"}) {
    element value;
    if (turn[key].get(value) != SUCCESS || value.is_null()) continue;
    std::string_view text;
    array list;
    if (value.get(text) == SUCCESS && text.empty()) continue;
    if (value.get(list) == SUCCESS && list.size() == 0) continue;
    return DataFaultError(absl::StrCat(
        "`", key,
        "` is not written into the text, so it would not be learnt; put it "
        "into the content as the model writes it, or remove the key"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Turn> ParseTurnOfRole(object turn, Role role,
                                     absl::StatusOr<std::string> text) {
  if (!text.ok()) return text.status();
  if (role == Role::kAssistant) {
    BALLAST_RETURN_IF_ERROR(CheckLearnt(turn));
  }
  return Turn{role, *std::move(text)};
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
    return ParseTurnOfRole(turn, role, ParseContent(turn));
  }
  return DataFaultError("`from` or `role` is missing or not a string");
}

// Refuses what other trainers write before the turns.
absl::Status CheckBeside(element root) {
  for (const char* key : {"system", "tools"}) {
    element value;
    if (root[key].get(value) != SUCCESS) continue;
    std::string_view text;
    array list;
    const bool says_something =
        value.get(text) == SUCCESS
            ? !text.empty() && text != "[]"
            : value.get(list) == SUCCESS && list.size() > 0;
    if (!says_something) continue;
    return DataFaultError(absl::StrCat(
        "`", key,
        "` beside the turns is not read, so the text would be another; write "
        "it into a first turn of role system, or remove the key"));
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

absl::StatusOr<std::vector<Turn>> ParseConversation(absl::string_view json) {
  simdjson::dom::parser parser;
  element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root);
      error != SUCCESS) {
    return DataFaultError(absl::StrCat("conversation is not valid JSON: ",
                                       simdjson::error_message(error)));
  }
  array list;
  array messages;
  const bool has_messages = root["messages"].get(messages) == SUCCESS;
  if (root["conversations"].get(list) != SUCCESS) {
    if (!has_messages) {
      return DataFaultError(
          "conversation is not an object with a list `conversations` or "
          "`messages`");
    }
    list = messages;
  } else if (has_messages && messages.size() > 0) {
    return DataFaultError(
        "both `conversations` and `messages` may be meant; wanted one of the "
        "two");
  }
  BALLAST_RETURN_IF_ERROR(CheckBeside(root));
  std::vector<Turn> turns;
  for (const element value : list) {
    absl::StatusOr<Turn> turn = ParseTurn(value);
    if (!turn.ok()) {
      return Annotate(turn.status(), absl::StrCat("turn ", turns.size() + 1));
    }
    turns.push_back(*std::move(turn));
  }
  if (turns.empty()) {
    return DataFaultError("the conversation has no turns");
  }
  return turns;
}

std::vector<absl::string_view> SplitAtImageMarks(absl::string_view text) {
  return absl::StrSplit(text, absl::ByString(kImageMark));
}

}  // namespace ballast
