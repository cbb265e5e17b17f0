#ifndef BALLAST_SERVER_TEXT_CHAT_WRITER_H_
#define BALLAST_SERVER_TEXT_CHAT_WRITER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/model.pb.h"
#include "proto/model_profile.pb.h"
#include "server/text/conversation.h"
#include "server/text/token_writer.h"

namespace ballast {

// The files of a checkpoint that may hold its chat template, in Jinja; "" if
// missing.
struct TemplateFiles {
  std::string jinja;             // chat_template.jinja
  std::string json;              // chat_template.json
  std::string tokenizer_config;  // tokenizer_config.json
};

// The checkpoint's template, from the first of these files that has one; "" if
// none has. If a file has several templates, the one of that name; "" if the
// first file with a default lacks it. Pure.
std::string OwnTemplate(const TemplateFiles& files,
                        absl::string_view name = "default");

// What shows that `own`, a checkpoint's template, is not `chat`, by its own_has
// and own_lacks: `lacks "[INST]"`, say, or `has "<think>"`. "" if nothing does,
// if `own` is empty, and for nullptr. Few strings are looked for: "" does not
// prove that the templates are equal. Pure.
std::string TemplateFault(const v1::Chat* chat, absl::string_view own);

// A warning, with what to do, if the template next to `model.tokenizer` shows
// that it is not the one that model.chat_template names. A missing file,
// or one that is not such a file, warns of nothing. `model` is a loaded one.
// Blocks on the disk.
std::vector<std::string> TemplateWarnings(const v1::Model& model);

// The template that model.chat_template names. Special tokens are spelled out:
//
//   chatml   <|im_start|>ROLE\nTEXT<|im_end|>\n for each turn
//   llama3   <|begin_of_text|>, then for each turn
//            <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>,
//            TEXT without white space at its ends
//   custom   model.custom_template
//   NAME     of the model's own file, or of models/NAME.textproto
//   checkpoint, or checkpoint@…
//            empty: server/text/template renders it
//
// where ROLE is system, user or assistant. With chatml and llama3 the
// assistant's TEXT and the <|im_end|> or <|eot_id|> after it are supervised.
// `model` is a loaded one.
v1::Chat GetChat(const v1::Model& model);

// The system turn of a conversation without one: model.system_prompt, else the
// template's; "": none.
std::string SystemPrompt(const v1::Model& model);

// The texts that the template writes, in no order. They point into `chat`.
std::vector<const std::string*> GetTexts(const v1::Chat& chat);

const v1::ChatTemplate::Turn& GetTurn(const v1::Chat& chat, Role role);

// Strips white space from both ends of `text`, as Python's str.strip does.
// `text` must be valid UTF-8.
absl::string_view StripWhiteSpace(absl::string_view text);

// Renders a conversation with a chat template, as the model's processor does
// with apply_chat_template and the images: each image mark becomes the text of
// the next image. Texts of supervised roles and the ends of their turns are
// supervised, images never. `name` is the template's, for messages.
//
// Tokens may span the seam between the template and a message, and a special
// token spelled out in a message ("<|im_end|>") becomes that token. A turn of
// weight 0 is not supervised. `notes_turns`: tokens name the turn that wrote
// them, header and end included.
//
// Errors: INVALID_ARGUMENT (turns that the template does not render; as
// CheckMarks).
absl::Status WriteConversation(absl::Span<const Turn> turns,
                               absl::Span<const ImagePieces> images,
                               const v1::Chat& chat, absl::string_view name,
                               TokenWriter* writer, bool notes_turns = false);

// INVALID_ARGUMENT if a text has other than one image mark for each image.
absl::Status CheckMarks(size_t marks, size_t images);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_CHAT_WRITER_H_
