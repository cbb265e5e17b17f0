#ifndef BALLAST_SERVER_TEXT_FAMILY_CONVERSATION_H_
#define BALLAST_SERVER_TEXT_FAMILY_CONVERSATION_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/image_plan/image_planner.h"
#include "server/text/conversation.h"
#include "server/text/family_template.h"
#include "server/text/family_tokens.h"
#include "server/text/text_sample.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Every special token of the family and its template is one of the tokenizer's.
// Errors: INVALID_ARGUMENT naming the token that is not.
absl::Status CheckFamilyTokens(const ImageFamily& family,
                               const FamilyTemplate& chat,
                               const Tokenizer& tokenizer);

// The texts of a sample's images. Errors: INVALID_ARGUMENT (an image that
// cannot be planned).
absl::StatusOr<std::vector<ImagePieces>> ImageTextsOf(
    absl::Span<const TileShape> sizes, const ImagePlanner& planner);

// As TokenizeFamilyConversation, before placeholders are expanded and without
// CheckFamilyTokens. `family` is a name for messages; `ids` has those of image
// and video.
absl::StatusOr<FamilyTokens> WriteFamilyConversation(
    absl::Span<const Turn> turns, absl::Span<const ImagePieces> images,
    const FamilyTemplate& chat, absl::string_view family,
    const Tokenizer& tokenizer, const v1::TokenIds& ids);

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
