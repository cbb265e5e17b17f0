#ifndef BALLAST_SERVER_TEXT_SAMPLE_TEXT_H_
#define BALLAST_SERVER_TEXT_SAMPLE_TEXT_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/text/media_text.h"
#include "server/text/model_text.h"
#include "server/text/sample_fields.h"
#include "server/text/text_token.h"

namespace ballast {

// The settings for building texts, common to all samples of a job.
struct TextOptions {
  const ModelText* text = nullptr;  // not owned
  uint32_t max_tokens = 0;
  v1::Batch::OnTooLong on_too_long = v1::Batch::ON_TOO_LONG_ERROR;
};

// Builds a sample's text from its images, in order, and its videos, and lays
// out its fields. Errors: as ModelText::Tokenize, ReadFields and CheckFields; a
// data fault (a weight between 0 and 1, and no field for it); OUT_OF_RANGE
// (more than max_tokens and on_too_long is not truncate_text, or the image
// tokens alone exceed it).
absl::StatusOr<TextSample> BuildText(absl::string_view text, TextForm form,
                                     const SampleImages& images,
                                     const TextOptions& options,
                                     absl::Span<const StreamText> videos = {},
                                     const TextFields& fields = {});

// Builds the texts of a preference pair, two conversations as BuildText reads
// them, each with all of the images. `fields.json` is the object that both have
// their fields from, "" if each has its own. Errors: as BuildText; OUT_OF_RANGE
// if both together have more than max_tokens, whatever on_too_long says, since
// one answer alone would be cut.
absl::StatusOr<std::array<TextSample, 2>> BuildPair(
    absl::string_view chosen, absl::string_view rejected,
    const SampleImages& images, const TextOptions& options,
    const TextFields& fields = {});

// The lengths of a text, as stored in an index.
struct MeasuredText {
  uint32_t text_tokens = 0;   // all but placeholders; of a pair, of both
  uint32_t label_tokens = 0;  // labels that are not -100
  // True if building this text returns OUT_OF_RANGE; the counts then cover
  // the whole text, before any truncation.
  bool too_long = false;
  // True if other pixel bounds or limits may change the counts even if this
  // text fits them: it was truncated, its ids are checked against its images,
  // or it has videos, whose sampling is one of the limits.
  bool limited = false;
  uint32_t first_text_tokens = 0;  // in `text_tokens`, of a pair's first
  // Why nothing is learnt, such as "no turn of the assistant", or the ends of
  // empty answers alone; "" otherwise.
  std::string unlearnt = "";
};

// Measures the sample that BuildText would build from the same arguments,
// truncation included, without building it. Errors: INVALID_ARGUMENT as
// BuildText.
absl::StatusOr<MeasuredText> MeasureText(
    absl::string_view text, TextForm form, const SampleImages& images,
    const TextOptions& options, absl::Span<const StreamText> videos = {},
    const TextFields& fields = {});

// Likewise of BuildPair.
absl::StatusOr<MeasuredText> MeasurePair(absl::string_view chosen,
                                         absl::string_view rejected,
                                         const SampleImages& images,
                                         const TextOptions& options,
                                         const TextFields& fields = {});

// The measure of so many unchanged token ids (TextForm::kPackedBytes), in a
// sample without images, all but the first supervised as labels.
MeasuredText MeasureTokenIds(uint64_t tokens, const TextOptions& options);

// True if a text of `text_tokens` that is not `limited`, or both texts of a
// pair, fit in options.max_tokens with their images: the measure is then
// unchanged.
bool TextFits(uint32_t text_tokens, const SampleImages& images,
              const TextOptions& options, bool is_pair = false);

// Both list everything that a measured length depends on besides the sample
// itself and its videos (VideoPlanKey), one KEY=VALUE per line: the first lists
// the settings that determine the whole text, the second its limits. An index
// built under another key is stale. `model` and `config` are loaded ones;
// `tokenizer` is the one that the model names.
std::string TextLengthKey(const v1::Model& model, const Tokenizer& tokenizer);
std::string TextLimitKey(const v1::Config& config);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_SAMPLE_TEXT_H_
