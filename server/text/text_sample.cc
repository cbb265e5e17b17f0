#include "server/text/text_sample.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "server/text/text_token.h"
#include "server/text/tokenize_text.h"

namespace ballast {

absl::StatusOr<TextSample> BuildText(absl::string_view text, TextForm form,
                                     absl::Span<const ImageGrid> images,
                                     const TextOptions& options,
                                     absl::Span<const VideoText> videos) {
  std::vector<uint32_t> placeholders =
      PlaceholderCounts(images, *options.model);
  BALLAST_ASSIGN_OR_RETURN(
      std::vector<TextToken> tokens,
      TokenizeText(text, form, placeholders, videos, options));
  AppendRuns(videos, &placeholders);
  // Checked before anything is expanded: a hostile image count costs no memory.
  BALLAST_RETURN_IF_ERROR(LimitTokens(placeholders, options.max_tokens,
                                      options.on_too_long, &tokens));
  return ExpandTokens(tokens, placeholders, options.model->token_ids(),
                      kVisionEnds, images.size());
}

}  // namespace ballast
