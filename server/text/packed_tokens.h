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

// Texts that are token ids already. In all of them the placeholders of image i
// stand between vision start and vision end and are `image_tokens[i]`, and
// there are as many images as the sample has. All errors are INVALID_ARGUMENT
// and name the token by its number from 0.

// Ids as 32-bit little-endian numbers, one after another. All are learnt but
// those of images.
absl::StatusOr<std::vector<TextToken>> ParsePackedBytes(
    absl::string_view bytes, absl::Span<const uint32_t> image_tokens,
    const v1::TokenIds& token_ids);

// A JSON array of ids; or an object with that array as `tokens` and, if not all
// are learnt, `labels` beside it: for each token itself (not the next one) its
// id where it is learnt, -100 where it is not.
absl::StatusOr<std::vector<TextToken>> ParsePackedJson(
    absl::string_view json, absl::Span<const uint32_t> image_tokens,
    const v1::TokenIds& token_ids);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_PACKED_TOKENS_H_
