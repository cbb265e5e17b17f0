#ifndef BALLAST_SERVER_TEXT_TOKENIZE_TEXT_H_
#define BALLAST_SERVER_TEXT_TOKENIZE_TEXT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/config/model_profile.h"
#include "server/text/text_sample.h"
#include "server/text/text_token.h"

namespace ballast {

// What a sample's text is.
enum class TextForm {
  kConversation,  // JSON, see BuildConversation
  kDocument,      // plain, see BuildDocument
};

// The tokens of a text before its images are expanded and before any limit.
// Both building and measuring start here, so they cannot disagree. Errors:
// INVALID_ARGUMENT as BuildConversation and BuildDocument say.
absl::StatusOr<std::vector<TextToken>> TokenizeText(absl::string_view text,
                                                    TextForm form,
                                                    size_t image_count,
                                                    const TextOptions& options);

// Placeholders of each image.
std::vector<uint32_t> PlaceholderCounts(absl::Span<const ImageGrid> images,
                                        const v1::Model& model);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKENIZE_TEXT_H_
