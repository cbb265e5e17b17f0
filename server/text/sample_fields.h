#ifndef BALLAST_SERVER_TEXT_SAMPLE_FIELDS_H_
#define BALLAST_SERVER_TEXT_SAMPLE_FIELDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/config/source_fields.h"
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
// beside a pair).
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

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_SAMPLE_FIELDS_H_
