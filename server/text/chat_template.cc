#include "server/text/chat_template.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/utf8.h"
#include "server/config/profiles.h"

namespace ballast {
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
  if (model.chat_template() == "llama3") {
    v1::Chat llama3 = WithNames("<|start_header_id|>", "<|end_header_id|>\n\n",
                                "<|eot_id|>", "");
    llama3.set_begin("<|begin_of_text|>");
    llama3.set_trim(true);
    return llama3;
  }
  return WithNames("<|im_start|>", "\n", "<|im_end|>", "\n");
}

std::vector<const std::string*> TextsOf(const v1::Chat& chat) {
  std::vector<const std::string*> texts = {
      &chat.begin(),       &chat.image_before(), &chat.image_after(),
      &chat.text_before(), &chat.text_after(),   &chat.text_first(),
      &chat.part_seam(),   &chat.answer_first(), &chat.answer_before()};
  for (const Role role : {Role::kSystem, Role::kUser, Role::kAssistant}) {
    const v1::ChatTemplate::Turn& turn = TurnOf(chat, role);
    texts.insert(texts.end(), {&turn.prefix(), &turn.end(), &turn.suffix()});
  }
  return texts;
}

const v1::ChatTemplate::Turn& TurnOf(const v1::Chat& chat, Role role) {
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

}  // namespace ballast
