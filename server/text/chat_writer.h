#ifndef BALLAST_SERVER_TEXT_CHAT_WRITER_H_
#define BALLAST_SERVER_TEXT_CHAT_WRITER_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/model.pb.h"
#include "proto/model_profile.pb.h"
#include "server/text/conversation.h"
#include "server/text/token_writer.h"

namespace ballast {

// Renders a conversation with a chat template, as the model's processor does
// with apply_chat_template and the images: each image mark becomes the text of
// the next image. Texts of supervised roles and the ends of their turns are
// supervised, images never. `name` is the template's, for messages.
//
// Tokens may span the seam between the template and a message, and a special
// token spelled out in a message ("<|im_end|>") becomes that token.
//
// Errors: INVALID_ARGUMENT (turns that the template does not render; as
// CheckMarks).
absl::Status WriteConversation(absl::Span<const Turn> turns,
                               absl::Span<const ImagePieces> images,
                               const v1::Chat& chat, absl::string_view name,
                               TokenWriter* writer);

// INVALID_ARGUMENT if a text has other than one image mark for each image.
absl::Status CheckMarks(size_t marks, size_t images);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_CHAT_WRITER_H_
