#include "server/text/text_sample.h"

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "server/text/text_token.h"
#include "server/text/tokenize_text.h"

namespace ballast {
namespace {

absl::StatusOr<TextSample> BuildText(absl::string_view text, TextForm form,
                                     absl::Span<const ImageGrid> images,
                                     const TextOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(std::vector<TextToken> tokens,
                           TokenizeText(text, form, images.size(), options));
  const std::vector<uint32_t> placeholders =
      PlaceholderCounts(images, *options.model);
  // Before anything is expanded: a hostile image count costs no memory.
  BALLAST_RETURN_IF_ERROR(LimitTokens(placeholders, options.max_tokens,
                                      options.on_too_long, &tokens));
  return ExpandTokens(tokens, placeholders, options.model->token_ids());
}

}  // namespace

absl::StatusOr<TextSample> BuildConversation(absl::string_view json,
                                             absl::Span<const ImageGrid> images,
                                             const TextOptions& options) {
  return BuildText(json, TextForm::kConversation, images, options);
}

absl::StatusOr<TextSample> BuildDocument(absl::string_view text,
                                         absl::Span<const ImageGrid> images,
                                         const TextOptions& options) {
  return BuildText(text, TextForm::kDocument, images, options);
}

}  // namespace ballast
