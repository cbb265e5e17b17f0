#ifndef BALLAST_SERVER_TEXT_TEXT_TOKEN_H_
#define BALLAST_SERVER_TEXT_TEXT_TOKEN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/text/text_sample.h"

namespace ballast {

// One entry of a sample's text before its images are expanded. A whole image
// (vision start, placeholders, vision end) is one entry, so that nothing can
// cut it and a text is measured without writing its placeholders.
struct TextToken {
  enum class Kind : uint8_t {
    kContext,     // not supervised: label -100
    kSupervised,  // supervised: label is its id
    kImage,       // `id` is the image's number in the sample, from 0
  };
  int32_t id = 0;
  Kind kind = Kind::kContext;
};

// The token counts of a text with its images expanded.
struct TextCounts {
  uint64_t text_tokens = 0;  // all but placeholders; vision start and end count
  uint64_t image_tokens = 0;  // placeholders
  uint64_t label_tokens = 0;  // labels that are not -100
  uint64_t total() const { return text_tokens + image_tokens; }
};

// `image_tokens[i]` is the number of placeholders of image i; each kImage entry
// names one of them.
TextCounts CountTokens(absl::Span<const TextToken> tokens,
                       absl::Span<const uint32_t> image_tokens);

// Makes the text fit max_tokens. With truncate_text, drops as many entries as
// needed from the end, but no images. Errors: OUT_OF_RANGE (too long under
// another `policy`; with truncate_text, the images alone are too long), with
// the counts and what to change.
absl::Status LimitTokens(absl::Span<const uint32_t> image_tokens,
                         uint32_t max_tokens, v1::Batch::OnTooLong policy,
                         std::vector<TextToken>* tokens);

// Writes the ids, with placeholders, and the labels: labels[i] is ids[i+1] if
// that token is supervised, -100 elsewhere and at the end.
TextSample ExpandTokens(absl::Span<const TextToken> tokens,
                        absl::Span<const uint32_t> image_tokens,
                        const v1::TokenIds& token_ids);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEXT_TOKEN_H_
