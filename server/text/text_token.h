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
    kContext,     // read, not learnt: labels -100
    kSupervised,  // learnt
    kImage,       // `id` is the number of the image in the sample, from 0
  };
  int32_t id = 0;
  Kind kind = Kind::kContext;
};

// Sizes of a text once its images are expanded.
struct TextCounts {
  uint64_t text_tokens = 0;   // all but placeholders: vision start, end count
  uint64_t image_tokens = 0;  // placeholders
  uint64_t label_tokens = 0;  // labels that are not -100
  uint64_t total() const { return text_tokens + image_tokens; }
};

// `image_tokens[i]` is the number of placeholders of image i; each kImage entry
// names one of them.
TextCounts CountTokens(absl::Span<const TextToken> tokens,
                       absl::Span<const uint32_t> image_tokens);

// Makes the text fit max_tokens. With truncate_text the last entries that are
// no images are dropped, as many as are too many. Errors: OUT_OF_RANGE (too
// long and another `policy`; with truncate_text, the images alone are too
// long), with the counts and what to change.
absl::Status LimitTokens(absl::Span<const uint32_t> image_tokens,
                         uint32_t max_tokens, v1::Batch::OnTooLong policy,
                         std::vector<TextToken>* tokens);

// Writes the placeholders and the labels: labels[i] is ids[i+1] where that is
// supervised, -100 elsewhere and at the end.
TextSample ExpandTokens(absl::Span<const TextToken> tokens,
                        absl::Span<const uint32_t> image_tokens,
                        const v1::TokenIds& token_ids);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEXT_TOKEN_H_
