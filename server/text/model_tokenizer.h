#ifndef BALLAST_SERVER_TEXT_MODEL_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_MODEL_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/text/text_token.h"

namespace ballast {

class TemplateRenderer;

// Opens `bytes` (one token per byte, ids 0..255), or the file of a Hugging Face
// tokenizer.json with a byte-level BPE model, or of a SentencePiece model.
// Errors name the file: NOT_FOUND and others of the file system,
// INVALID_ARGUMENT (not such a file; an unsupported setting, with its key),
// UNAVAILABLE and FAILED_PRECONDITION (libsentencepiece cannot be run here).
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(
    const std::string& name_or_path);

// Opens the tokenizer that a loaded model names, and makes the model's token
// ids agree with it. An id that comes from the profile is replaced by the
// tokenizer's id for the token of that name (<|image_pad|>, <|video_pad|>,
// <|vision_start|>, <|vision_end|>, <|im_start|>, <|im_end|>, <|endoftext|>);
// the pad follows end of text. Ids set by the configuration stay.
//
// A SentencePiece model shares no ids with a profile. Without an <|endoftext|>
// it supplies its own end of text and pad; any other id that is needed, and
// whose token it lacks, must be set. Ids of tokens that are never written
// become -1.
//
// `chat_template: checkpoint` becomes checkpoint@HASH+jinja2-VERSION, so that
// servers and indexes with another template or jinja2 differ. What renders it
// then goes to `renderer`, for ModelText::Create, if that is not null.
//
// Errors: as MakeTokenizer; INVALID_ARGUMENT (an id that must be set; a special
// token of the chat template that the tokenizer lacks; two token ids that must
// differ are equal); with `chat_template: checkpoint` as ReadJinjaTemplate and
// TemplateRenderer::Create.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenModelTokenizer(
    v1::Model* model,
    std::unique_ptr<const TemplateRenderer>* renderer = nullptr);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_MODEL_TOKENIZER_H_
