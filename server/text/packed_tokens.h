#ifndef BALLAST_SERVER_TEXT_PACKED_TOKENS_H_
#define BALLAST_SERVER_TEXT_PACKED_TOKENS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/text/text_token.h"

namespace ballast {

// Parses texts that are already token ids. In all forms, the `image_tokens[i]`
// placeholders of image i are between vision start and vision end, and the
// number of images is that of the sample. All errors are INVALID_ARGUMENT and
// name the token by its number from 0.

// The runs of placeholders that a family's images take among packed ids.
struct PackedRuns {
  absl::Span<const uint32_t> lengths;  // in order; adjacent ones may touch
  // Special tokens around them: never supervised, never cut.
  absl::Span<const int32_t> marks;
};

// As the functions below, for a family: the placeholders are the runs, each an
// entry of kind kImage, and nothing is asked of the tokens around them.
absl::StatusOr<std::vector<TextToken>> ParseFamilyBytes(
    absl::string_view bytes, const PackedRuns& runs,
    const v1::TokenIds& token_ids);
absl::StatusOr<std::vector<TextToken>> ParseFamilyJson(
    absl::string_view json, const PackedRuns& runs,
    const v1::TokenIds& token_ids);

// Parses 32-bit little-endian ids. All are supervised except those of images.
absl::StatusOr<std::vector<TextToken>> ParsePackedBytes(
    absl::string_view bytes, absl::Span<const uint32_t> image_tokens,
    const v1::TokenIds& token_ids);

// Parses a JSON array of ids; or an object with that array as `tokens` and,
// optionally, `labels`: for each token itself (not the next one) its id if it
// is supervised, -100 if not. Without `labels` all are supervised.
absl::StatusOr<std::vector<TextToken>> ParsePackedJson(
    absl::string_view json, absl::Span<const uint32_t> image_tokens,
    const v1::TokenIds& token_ids);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_PACKED_TOKENS_H_
