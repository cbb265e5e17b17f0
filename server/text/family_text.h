#ifndef BALLAST_SERVER_TEXT_FAMILY_TEXT_H_
#define BALLAST_SERVER_TEXT_FAMILY_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/model.pb.h"
#include "server/config/model_images.h"
#include "server/image_plan/image_family.h"
#include "server/text/family_template.h"
#include "server/text/family_tokens.h"
#include "server/text/text_measure.h"
#include "server/text/text_sample.h"
#include "server/text/tokenizer.h"
#include "server/text/video_text.h"

namespace ballast {

// The texts of a job whose model has an image family: its chat template, and
// the text that its processor writes for images. Immutable, so that threads may
// share it.
class FamilyText {
 public:
  // `model` is complete and has a family; `tokenizer`, which is not owned, is
  // the one that it names, and the model's ids agree with it
  // (OpenModelTokenizer). Errors: INVALID_ARGUMENT (a template that is not
  // covered; a token of the family or its template that the tokenizer lacks).
  static absl::StatusOr<std::unique_ptr<const FamilyText>> Create(
      const v1::Model& model, const Tokenizer* tokenizer);

  // The tokens of a sample's text before any limit. `sizes`: of its images, in
  // order; `videos`: its videos, which stand where their marks are. Errors:
  // INVALID_ARGUMENT as BuildText; turns that the template does not render; an
  // image that cannot be planned; as MarkFrames.
  absl::StatusOr<FamilyTokens> Tokenize(
      absl::string_view text, TextForm form, absl::Span<const TileShape> sizes,
      absl::Span<const VideoText> videos = {}) const;

  // For each of a sample's videos, the number of its images behind it in the
  // text. Errors: as Tokenize, as far as texts and marks go.
  absl::StatusOr<std::vector<uint32_t>> ImagesBehind(absl::string_view text,
                                                     TextForm form,
                                                     size_t images,
                                                     size_t videos) const;

  // Writes the position ids of a sample's ids to `out`, [position_axes,
  // ids.size()]. Errors: INVALID_ARGUMENT (the size of `out`; placeholders that
  // do not fit the images).
  absl::Status Place(absl::Span<const int32_t> ids,
                     absl::Span<const TileShape> sizes,
                     absl::Span<int32_t> out) const;

  // Placeholders of all images of a sample.
  absl::StatusOr<uint64_t> Placeholders(
      absl::Span<const TileShape> sizes) const;

  // The id that stands for a video: its own, or that of images.
  int32_t video_placeholder() const;

  const v1::Model& model() const { return model_; }
  const ModelImages& images() const { return images_; }
  const ImagePlanner& planner() const { return *images_.planner(); }

 private:
  FamilyText(const v1::Model& model, ModelImages images,
             const Tokenizer* tokenizer)
      : model_(model), images_(std::move(images)), tokenizer_(tokenizer) {}

  absl::StatusOr<FamilyTokens> TokenizeConversation(
      std::vector<Turn> turns, absl::Span<const ImagePieces> images) const;
  absl::StatusOr<FamilyTokens> TokenizeDocument(
      absl::string_view text, absl::Span<const ImagePieces> images) const;
  absl::StatusOr<FamilyTokens> ParsePacked(
      absl::string_view text, bool is_json,
      absl::Span<const ImagePieces> images) const;

  const v1::Model model_;
  const ModelImages images_;
  const Tokenizer* const tokenizer_;
  // nullopt: the template of model.chat_template chatml, llama3 or custom.
  std::optional<FamilyTemplate> family_template_;
};

// As BuildText and MeasureText, for options with a family.
absl::StatusOr<TextSample> BuildFamilyText(
    absl::string_view text, TextForm form, absl::Span<const TileShape> sizes,
    const TextOptions& options, absl::Span<const VideoText> videos = {});
absl::StatusOr<MeasuredText> MeasureFamilyText(
    absl::string_view text, TextForm form, absl::Span<const TileShape> sizes,
    const TextOptions& options, absl::Span<const VideoText> videos = {});

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_FAMILY_TEXT_H_
