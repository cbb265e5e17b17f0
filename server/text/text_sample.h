#ifndef BALLAST_SERVER_TEXT_TEXT_SAMPLE_H_
#define BALLAST_SERVER_TEXT_TEXT_SAMPLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/config/model_profile.h"
#include "server/text/tokenizer.h"
#include "server/text/video_text.h"

namespace ballast {

class FamilyText;

// A sample's text, ready for a block.
struct TextSample {
  std::vector<int32_t> ids;     // [tokens], image placeholders expanded
  std::vector<int32_t> labels;  // [tokens], labels[i] = ids[i+1] if that token
                                // is supervised, -100 elsewhere and at the end
  uint32_t label_tokens = 0;    // labels that are not -100
};

// The settings for building texts, common to all samples of a job.
struct TextOptions {
  const Tokenizer* tokenizer = nullptr;  // not owned
  const v1::Model* model = nullptr;      // complete; not owned
  uint32_t max_tokens = 0;
  v1::Batch::OnTooLong on_too_long = v1::Batch::ON_TOO_LONG_ERROR;
  // Of a model with an image family, whose texts only BuildFamilyText and
  // MeasureFamilyText (family_text.h) take; else nullptr. Not owned.
  const FamilyText* family = nullptr;
};

// The form of a sample's text.
enum class TextForm {
  // JSON, as ParseConversation reads it, rendered with the model's chat
  // template (chat_template.h). Every `<image>` becomes vision start, one
  // placeholder per token of its grid, vision end. Supervised: the assistant's
  // text and the end of its turn (docs/text.md has the exact rule).
  kConversation,
  // Plain text: images come first unless `<image>` marks place them, then the
  // text, then end-of-text. The text and the end are supervised.
  kDocument,
  // Token ids (packed_tokens.h).
  kPackedBytes,
  kPackedJson,
};

// Builds a sample's text. `images` are the sample's images in order, `videos`
// its videos. Errors:
// INVALID_ARGUMENT (text that is not of `form`, or not UTF-8 if that is an
// error; another number of marks than images), OUT_OF_RANGE (more than
// max_tokens and on_too_long is not truncate_text, or the image tokens alone
// exceed it).
absl::StatusOr<TextSample> BuildText(absl::string_view text, TextForm form,
                                     absl::Span<const ImageGrid> images,
                                     const TextOptions& options,
                                     absl::Span<const VideoText> videos = {});

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEXT_SAMPLE_H_
