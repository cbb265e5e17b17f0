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
  // Other pixel bounds or limits may give other counts, even ones within which
  // this text keeps: it was truncated, or its ids are held against its images.
  bool limited = false;
};

// Measures the sample that BuildText would build of the same arguments,
// truncation included, without building it. Errors: INVALID_ARGUMENT as there.
absl::StatusOr<MeasuredText> MeasureText(absl::string_view text, TextForm form,
                                         absl::Span<const ImageGrid> images,
                                         const TextOptions& options);

// Whether a text that has `text_tokens`, and is not `limited`, keeps within
// options.max_tokens beside `images`: it then measures what it did before.
bool TextFits(uint32_t text_tokens, absl::Span<const ImageGrid> images,
              const TextOptions& options);

// Both name all that a measured length depends on beside the sample itself, one
// KEY=VALUE a line: the first what the whole text does, the second what the
// text must keep within. An index that was built under another key is stale.
// `model` and `config` are loaded ones, `tokenizer` the one that the model
// names.
std::string TextLengthKey(const v1::Model& model, const Tokenizer& tokenizer);
std::string TextLimitKey(const v1::Config& config);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEXT_MEASURE_H_
