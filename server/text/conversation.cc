#include "server/text/conversation.h"

#include <string_view>
#include <utility>

#include <simdjson.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Debian's absl::string_view is a type of its own.
absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

absl::StatusOr<Role> ParseRole(absl::string_view from) {
  if (from == "human" || from == "user") return Role::kUser;
  if (from == "gpt" || from == "assistant") return Role::kAssistant;
  if (from == "system") return Role::kSystem;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown `from` \"", from,
                   "\"; wanted human, user, gpt, assistant or system"));
}

absl::StatusOr<Turn> ParseTurn(simdjson::dom::element element) {
  simdjson::dom::object object;
  if (element.get(object) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError("not an object with `from` and `value`");
  }
  std::string_view from;
  if (object["from"].get(from) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError("`from` is missing or not a string");
  }
  std::string_view value;
  if (object["value"].get(value) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError("`value` is missing or not a string");
  }
  BALLAST_ASSIGN_OR_RETURN(const Role role, ParseRole(View(from)));
  return Turn{role, std::string(value)};
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
  simdjson::dom::element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root);
      error != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat(
        "conversation is not valid JSON: ", simdjson::error_message(error)));
  }
  simdjson::dom::array list;
  if (root["conversations"].get(list) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(
        "conversation is not an object with a list `conversations`");
  }
  std::vector<Turn> turns;
  for (const simdjson::dom::element element : list) {
    absl::StatusOr<Turn> turn = ParseTurn(element);
    if (!turn.ok()) {
      return Annotate(turn.status(), absl::StrCat("turn ", turns.size() + 1));
    }
    turns.push_back(*std::move(turn));
  }
  if (turns.empty()) {
    return absl::InvalidArgumentError("`conversations` is empty");
  }
  return turns;
}

std::vector<absl::string_view> SplitAtImageMarks(absl::string_view text) {
  return absl::StrSplit(text, absl::ByString(kImageMark));
}

}  // namespace ballast
