#ifndef BALLAST_SERVER_TEXT_TOKENIZE_CONVERSATION_H_
#define BALLAST_SERVER_TEXT_TOKENIZE_CONVERSATION_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/text/conversation.h"
#include "server/text/text_sample.h"
#include "server/text/text_token.h"

namespace ballast {

// Renders a conversation with the model's chat template (chat_template.h) and
// encodes it as one text, as apply_chat_template(tokenize=True) does: tokens
// may span the seam between the template and a message, and a special token
// spelled out in a message ("<|im_end|>") becomes that token. Images replace
// their marks.
//
// A token is supervised if any of its bytes is: the text of a supervised role,
// and the end after it.
//
// Errors: INVALID_ARGUMENT (image marks other than `image_count`, or video
// marks other than the videos; a spelled-out image token), the tokenizer's.
absl::StatusOr<std::vector<TextToken>> TokenizeConversation(
    absl::Span<const Turn> turns, size_t image_count,
    absl::Span<const VideoText> videos, const TextOptions& options);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKENIZE_CONVERSATION_H_
