#ifndef BALLAST_SERVER_TEXT_FAMILY_CONVERSATION_H_
#define BALLAST_SERVER_TEXT_FAMILY_CONVERSATION_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/image_plan/image_planner.h"
#include "server/text/conversation.h"
#include "server/text/family_template.h"
#include "server/text/text_sample.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Renders a conversation with a family's chat template and encodes it, as the
// family's processor does with apply_chat_template and the images: each image
// mark becomes the text of the next image (ImageText), whose placeholders are
// expanded; all text between two runs of placeholders is encoded at once. The
// assistant's texts and the ends of its turns are supervised, images never.
// `sizes` are those of the images, in order, in pixels.
//
// Errors: INVALID_ARGUMENT (a token of the family or its template that the
// tokenizer lacks; turns that the template does not render; marks of other than
// sizes.size() images; an image that cannot be planned; a spelled-out
// placeholder); the tokenizer's.
absl::StatusOr<TextSample> TokenizeFamilyConversation(
    absl::Span<const Turn> turns, absl::Span<const TileShape> sizes,
    const ImagePlanner& planner, const FamilyTemplate& chat,
    const Tokenizer& tokenizer);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_FAMILY_CONVERSATION_H_
