#ifndef BALLAST_SERVER_TEXT_CHAT_TEMPLATE_H_
#define BALLAST_SERVER_TEXT_CHAT_TEMPLATE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/model.pb.h"
#include "proto/model_profile.pb.h"
#include "server/text/conversation.h"

namespace ballast {

// The template that model.chat_template names. Special tokens are spelled out:
//
//   chatml   <|im_start|>ROLE\nTEXT<|im_end|>\n for each turn
//   llama3   <|begin_of_text|>, then for each turn
//            <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>,
//            TEXT without white space at its ends
//   custom   model.custom_template
//   NAME     of the model's own file, or of models/NAME.textproto
//
// where ROLE is system, user or assistant. With chatml and llama3 the
// assistant's TEXT and the <|im_end|> or <|eot_id|> after it are supervised.
// `model` is a loaded one.
v1::Chat GetChat(const v1::Model& model);

// The texts that the template writes, in no order. They point into `chat`.
std::vector<const std::string*> TextsOf(const v1::Chat& chat);

const v1::ChatTemplate::Turn& TurnOf(const v1::Chat& chat, Role role);

// Strips white space from both ends of `text`, as Python's str.strip does.
// `text` must be valid UTF-8.
absl::string_view StripWhiteSpace(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_CHAT_TEMPLATE_H_
