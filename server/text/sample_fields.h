#ifndef BALLAST_SERVER_TEXT_SAMPLE_FIELDS_H_
#define BALLAST_SERVER_TEXT_SAMPLE_FIELDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/settings/source_fields.h"
#include "server/text/text_token.h"

namespace ballast {

// The fields of one sample (sources[].fields), as their record says them.

// The numbers of each field, as 32 bits of its type; of a field that the record
// lacks, none.
using SampleFields = std::vector<std::vector<uint32_t>>;

// What a text is built with: the source's fields, and the record's JSON object,
// "" without one. Nothing is owned.
struct TextFields {
  absl::Span<const FieldSpec> specs;
  absl::string_view json;
  // The text is one of a pair's two, of which no list says which it is for.
  bool of_pair = false;
};

// The value where a record has none, or where a text is of no turn: 0 without a
// default.
uint32_t MissingBits(const FieldSpec& spec);

// Reads the key of each field's name: a number; for `turn` and `token` a list
// of them. The numbers of turns may be in the turns instead, under that key.
// A null is missing. Errors: a data fault (a value that is missing, without a
// default; one that its type does not hold; another number than turns; a list
// for a pair).
absl::StatusOr<SampleFields> ReadFields(const TextFields& fields);

// OK unless a field `token` has another number of values than the text has
// tokens, before any limit. Errors: a data fault.
absl::Status CheckFields(absl::Span<const FieldSpec> specs,
                         const SampleFields& values, const TextTokens& text);

// The number of tokens before each entry.
std::vector<uint32_t> GetPlaces(const TextTokens& text);

// Writes the numbers as a block has them. `text` is limited, and `places` are
// its entries' places before that. The arrays have the sizes of FieldCounts.
void WriteFields(absl::Span<const FieldSpec> specs, const SampleFields& values,
                 const TextTokens& text, absl::Span<const uint32_t> places,
                 TextSample* sample);

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

// Parses 32-bit little-endian ids. All are supervised except image ids.
absl::StatusOr<std::vector<TextToken>> ParsePackedBytes(
    absl::string_view bytes, const PackedRuns& runs,
    const v1::TokenIds& token_ids);

// Parses a JSON array of ids; or an object with that array as `tokens` and,
// optionally, `labels`, unshifted: the ids of supervised tokens, -100 for all
// others. Without `labels` all are supervised.
absl::StatusOr<std::vector<TextToken>> ParsePackedJson(
    absl::string_view json, const PackedRuns& runs,
    const v1::TokenIds& token_ids);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_SAMPLE_FIELDS_H_
