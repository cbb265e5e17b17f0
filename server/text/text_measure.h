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

// The lengths of a text, as stored in an index.
struct MeasuredText {
  uint32_t text_tokens = 0;  // all but placeholders; vision start and end count
  uint32_t label_tokens = 0;  // labels that are not -100
  // True if building this text returns OUT_OF_RANGE; the counts are then those
  // of the whole text, before any truncation.
  bool too_long = false;
  // True if other pixel bounds or limits may change the counts even if this
  // text fits them: it was truncated, its ids are checked against its images,
  // or it has videos, whose sampling is one of the limits.
  bool limited = false;
};

// Measures the sample that BuildText would build from the same arguments,
// truncation included, without building it. Errors: INVALID_ARGUMENT as
// BuildText.
absl::StatusOr<MeasuredText> MeasureText(
    absl::string_view text, TextForm form, absl::Span<const ImageGrid> images,
    const TextOptions& options, absl::Span<const VideoText> videos = {});

// True if a text of `text_tokens` that is not `limited` fits in
// options.max_tokens beside `images`: its measure is then unchanged.
bool TextFits(uint32_t text_tokens, absl::Span<const ImageGrid> images,
              const TextOptions& options);

// Both list everything that a measured length depends on besides the sample
// itself and its videos (VideoPlanKey), one KEY=VALUE per line: the first lists
// the settings that determine the whole text, the second its limits. An index
// built under another key is stale. `model` and `config` are loaded ones;
// `tokenizer` is the one that the model names.
std::string TextLengthKey(const v1::Model& model, const Tokenizer& tokenizer);
std::string TextLimitKey(const v1::Config& config);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEXT_MEASURE_H_
