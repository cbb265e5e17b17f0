#ifndef BALLAST_SERVER_TEXT_TEXT_MEASURE_H_
#define BALLAST_SERVER_TEXT_TEXT_MEASURE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/config/model_profile.h"
#include "server/text/text_sample.h"
#include "server/text/tokenize_text.h"
#include "server/text/tokenizer.h"

namespace ballast {

// What an index keeps of a text.
struct MeasuredText {
  uint32_t text_tokens = 0;   // all but placeholders: vision start, end count
  uint32_t label_tokens = 0;  // labels that are not -100
  // Building this text answers OUT_OF_RANGE; the counts are then those of the
  // whole text, before any truncation.
  bool too_long = false;
};

// Measures the sample that BuildText would build of the same arguments,
// truncation included, without building it. Errors: INVALID_ARGUMENT as there.
absl::StatusOr<MeasuredText> MeasureText(absl::string_view text, TextForm form,
                                         absl::Span<const ImageGrid> images,
                                         const TextOptions& options);

// Names all that a measured length depends on beside the sample itself, one
// KEY=VALUE a line. An index that was built under another key is stale.
// `config` is a loaded one, `tokenizer` the one that its model names.
std::string TextContentKey(const v1::Config& config,
                           const Tokenizer& tokenizer);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEXT_MEASURE_H_
