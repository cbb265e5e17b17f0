#include "server/text/chat_template.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/utf8.h"
#include "server/text/conversation.h"

namespace ballast {
namespace {

// A template in which only the role's name differs between turns.
v1::ChatTemplate WithNames(absl::string_view before_name,
                           absl::string_view after_name, const char* end,
                           const char* suffix) {
  v1::ChatTemplate result;
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

v1::ChatTemplate MakeChatTemplate(const v1::Model& model) {
  if (model.chat_template() == "custom") return model.custom_template();
  if (model.chat_template() == "llama3") {
    v1::ChatTemplate llama3 = WithNames(
        "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "");
    llama3.set_begin("<|begin_of_text|>");
    llama3.set_trim(true);
    return llama3;
  }
  return WithNames("<|im_start|>", "\n", "<|im_end|>", "\n");
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
