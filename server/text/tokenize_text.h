#ifndef BALLAST_SERVER_TEXT_TOKENIZE_TEXT_H_
#define BALLAST_SERVER_TEXT_TOKENIZE_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/config/model_profile.h"
#include "server/text/text_sample.h"
#include "server/text/text_token.h"

namespace ballast {

// Tokenizes a text, before its images are expanded and before any limit;
// `placeholders` has one number for each image. Building and measuring both
// start here, so they cannot disagree. Errors: INVALID_ARGUMENT as BuildText.
absl::StatusOr<std::vector<TextToken>> TokenizeText(
    absl::string_view text, TextForm form,
    absl::Span<const uint32_t> placeholders, absl::Span<const VideoText> videos,
    const TextOptions& options);

// `text` itself if it is UTF-8; otherwise, with on_invalid_utf8 `replace`,
// `replaced`, which then holds it with U+FFFD in place of each invalid
// character. Errors: INVALID_ARGUMENT naming the byte.
absl::StatusOr<absl::string_view> ValidText(absl::string_view text,
                                            const v1::Model& model,
                                            std::string* replaced);

// The number of placeholders of each image.
std::vector<uint32_t> PlaceholderCounts(absl::Span<const ImageGrid> images,
                                        const v1::Model& model);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKENIZE_TEXT_H_
