#ifndef BALLAST_SERVER_TEXT_TEXT_TOKEN_H_
#define BALLAST_SERVER_TEXT_TEXT_TOKEN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/text/text_sample.h"

namespace ballast {

// One entry of a sample's text before its images are expanded. A run of
// placeholders with the `ends` tokens around it is one entry, so that nothing
// can cut it and a text is measured without writing its placeholders. For Qwen
// a run is an image, between vision start and vision end; for other families an
// image may be several runs, and the tokens around them are entries of kind
// kImageText.
struct TextToken {
  enum class Kind : uint8_t {
    kContext,     // not supervised: label -100
    kSupervised,  // supervised: label is its id
    kImage,       // `id` is the run's number in the sample, from 0
    kImageText,   // not supervised, and never cut
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

// Tokens around each run of placeholders: vision start and vision end.
inline constexpr uint32_t kVisionEnds = 2;

// `image_tokens[i]` is the number of placeholders of run i; each kImage entry
// names one of them. `ends` is kVisionEnds or 0.
TextCounts CountTokens(absl::Span<const TextToken> tokens,
                       absl::Span<const uint32_t> image_tokens,
                       uint32_t ends = kVisionEnds);

// Makes the text fit max_tokens. With truncate_text, drops as many entries as
// needed from the end, but no images. Errors: OUT_OF_RANGE (too long under
// another `policy`; with truncate_text, the images alone are too long), with
// the counts and what to change.
absl::Status LimitTokens(absl::Span<const uint32_t> image_tokens,
                         uint32_t max_tokens, v1::Batch::OnTooLong policy,
                         std::vector<TextToken>* tokens,
                         uint32_t ends = kVisionEnds);

// Writes the ids, with placeholders, and the labels: labels[i] is ids[i+1] if
// that token is supervised, -100 elsewhere and at the end. Runs from number
// `first_video` on are of videos.
TextSample ExpandTokens(absl::Span<const TextToken> tokens,
                        absl::Span<const uint32_t> image_tokens,
                        const v1::TokenIds& token_ids,
                        uint32_t ends = kVisionEnds,
                        size_t first_video = SIZE_MAX);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEXT_TOKEN_H_
