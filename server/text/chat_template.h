#ifndef BALLAST_SERVER_TEXT_CHAT_TEMPLATE_H_
#define BALLAST_SERVER_TEXT_CHAT_TEMPLATE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace ballast {

// The template that conversations are rendered with. Special tokens are spelled
// out:
//
//   chatml   <|im_start|>ROLE\nTEXT<|im_end|>\n for each turn
//   llama3   <|begin_of_text|>, then for each turn
//            <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>,
//            TEXT without white space at its ends
//   custom   model.custom_template
//
// where ROLE is system, user or assistant. The assistant's TEXT and the
// <|im_end|> or <|eot_id|> after it are supervised. `model` is a loaded one.
v1::ChatTemplate MakeChatTemplate(const v1::Model& model);

// Strips white space from both ends of `text`, as Python's str.strip does.
// `text` must be valid UTF-8.
absl::string_view StripWhiteSpace(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_CHAT_TEMPLATE_H_
