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

// Parses texts that are already token ids. All errors are INVALID_ARGUMENT and
// name the token by its number from 0.

// The runs of placeholders that a sample's images take among packed ids: each
// an entry of kind kImage. Adjacent runs may touch. Where `token_ids` has
// vision start and end, each run must be between them.
struct PackedRuns {
  absl::Span<const uint32_t> lengths;  // in order
  // Special tokens around them, without vision start and end: never supervised,
  // never cut.
  absl::Span<const int32_t> marks;
};

// Parses 32-bit little-endian ids. All are supervised except those of images.
absl::StatusOr<std::vector<TextToken>> ParsePackedBytes(
    absl::string_view bytes, const PackedRuns& runs,
    const v1::TokenIds& token_ids);

// Parses a JSON array of ids; or an object with that array as `tokens` and,
// optionally, `labels`: for each token itself (not the next one) its id if it
// is supervised, -100 if not. Without `labels` all are supervised.
absl::StatusOr<std::vector<TextToken>> ParsePackedJson(
    absl::string_view json, const PackedRuns& runs,
    const v1::TokenIds& token_ids);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_PACKED_TOKENS_H_
