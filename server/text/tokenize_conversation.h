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

// A conversation as the model's chat template writes it (chat_template.h),
// encoded as one text, as apply_chat_template(tokenize=True) does: tokens may
// span the seam between the template's text and what is said, and a special
// token that somebody spells out ("<|im_end|>") is that token. The images stand
// where their marks are.
//
// A token is learnt when any byte of what it stands for is: what a supervised
// role says, and the end after it.
//
// Errors: INVALID_ARGUMENT (image marks other than `image_count`; a spelled-out
// image token), the tokenizer's.
absl::StatusOr<std::vector<TextToken>> TokenizeConversation(
    absl::Span<const Turn> turns, size_t image_count,
    const TextOptions& options);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKENIZE_CONVERSATION_H_
