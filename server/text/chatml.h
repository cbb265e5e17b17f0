#ifndef BALLAST_SERVER_TEXT_CHATML_H_
#define BALLAST_SERVER_TEXT_CHATML_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/text/conversation.h"
#include "server/text/text_token.h"
#include "server/text/tokenizer.h"

namespace ballast {

// A conversation as ChatML prints it, each turn
//
//   <|im_start|>ROLE\nTEXT<|im_end|>\n
//
// with the ids of `token_ids` for <|im_start|> and <|im_end|>. No system prompt
// is added where a conversation has none. The text of a turn is data: what
// looks like a special token in it is encoded as text.
//
// Supervised are the assistant's text and the <|im_end|> after it. Role and
// text are encoded in one piece, as a renderer of the whole template would,
// but for the assistant, whose text is encoded on its own: at inference the
// prompt ends after "assistant\n".
//
// Errors: INVALID_ARGUMENT (image marks other than `image_count`), the
// tokenizer's.
absl::StatusOr<std::vector<TextToken>> TokenizeChatml(
    absl::Span<const Turn> turns, size_t image_count,
    const Tokenizer& tokenizer, const v1::TokenIds& token_ids);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_CHATML_H_
