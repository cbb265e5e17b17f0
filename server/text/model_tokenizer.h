#ifndef BALLAST_SERVER_TEXT_MODEL_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_MODEL_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Opens the tokenizer that a loaded model names, and makes the model's token
// ids agree with it: an id that is the profile's own gives way to the one that
// the tokenizer has for the token of that name (<|image_pad|>, <|video_pad|>,
// <|vision_start|>, <|vision_end|>, <|im_start|>, <|im_end|>, <|endoftext|>);
// the pad follows end of text. Ids that the configuration sets stay.
//
// A SentencePiece model's ids are no profile's. It says its end of text and pad
// itself where it has no <|endoftext|>; any other id that is needed, and that it
// has no token for, must be set. Ids of what is never written become -1.
//
// Errors: MakeTokenizer's; INVALID_ARGUMENT (an id that must be set; the chat
// template needs a special
// token that the tokenizer lacks; two token ids come to be equal that must
// not).
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenModelTokenizer(v1::Model* model);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_MODEL_TOKENIZER_H_
