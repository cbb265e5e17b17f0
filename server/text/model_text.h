#ifndef BALLAST_SERVER_TEXT_MODEL_TEXT_H_
#define BALLAST_SERVER_TEXT_MODEL_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/model_profile.pb.h"
#include "server/media/image_plan/image_family.h"
#include "server/model/model_images.h"
#include "server/text/conversation.h"
#include "server/text/media_text.h"
#include "server/text/positions.h"
#include "server/text/template/rendered_text.h"
#include "server/text/template/template_renderer.h"
#include "server/text/text_token.h"
#include "server/text/token_writer.h"

namespace ballast {

// The form of a sample's text.
enum class TextForm {
  // JSON, as ParseConversation reads it, rendered with the model's chat
  // template (chat_writer.h). Every `<image>` becomes the text of the next
  // image, every `<video>` the text of the next video; in a sample of videos
  // alone `<image>` is a video's mark, too, as LLaVA's data have it.
  // Supervised: the assistant's text and the end of its turn (docs/text.md has
  // the exact rule).
  kConversation,
  // Plain text: images come first unless `<image>` marks place them, then the
  // text, then end-of-text. The text and the end are supervised.
  kDocument,
  // Token ids (sample_fields.h).
  kPackedBytes,
  kPackedJson,
};

// The texts of a job's model: its chat template, its token ids, and the text
// that its processor writes for images and videos. Immutable, so that threads
// may share it.
class ModelText {
 public:
  // `model` is complete; `tokenizer`, which is not owned, is the one that it
  // names, and the model's ids agree with it (OpenModelTokenizer). Errors:
  // INVALID_ARGUMENT (a token of the model's images or its template that
  // neither the model's ids nor the tokenizer have; a system prompt where the
  // template has no system turn; as ModelImages::Create). `renderer` renders
  // conversations (`chat_template: checkpoint`); null: the template that the
  // model names does. `recipe` is the one that the model names.
  static absl::StatusOr<std::unique_ptr<const ModelText>> Create(
      const v1::Model& model, const Tokenizer* tokenizer,
      std::unique_ptr<const TemplateRenderer> renderer = nullptr,
      std::shared_ptr<const ImageRecipe> recipe = nullptr);

  // The tokens of a sample's text before any limit. `images` and `streams`
  // (MediaText::texts) are in order, each kind where its marks are. Building
  // and measuring both start here, so they cannot disagree. Errors:
  // INVALID_ARGUMENT (text that is not of `form`, or not UTF-8 if that is an
  // error; turns that the template does not render; another number of marks
  // than images or videos; an image that cannot be planned; a spelled-out
  // placeholder); the tokenizer's. `notes_turns`: tokens of a conversation name
  // the turn that wrote them; with the checkpoint's own template only tokens
  // of the assistant's turns do.
  absl::StatusOr<TextTokens> Tokenize(absl::string_view text, TextForm form,
                                      const SampleImages& images,
                                      absl::Span<const StreamText> streams = {},
                                      bool notes_turns = false) const;

  // A conversation as the checkpoint's template writes it; of a model with
  // another template FAILED_PRECONDITION. Errors: as RenderSupervised.
  absl::StatusOr<SupervisedText> Render(absl::string_view json,
                                        const MediaCounts& media) const;

  // The tokens of what Render gave; Tokenize does both, and refuses a text that
  // leaves something out. Errors: as Tokenize.
  absl::StatusOr<TextTokens> TokenizeRendered(
      const SupervisedText& rendered, const SampleImages& images,
      absl::Span<const StreamText> streams = {},
      bool notes_turns = false) const;

  // The text of a conversation without videos, with an image mark for each of
  // its images: for comparing templates. Errors: as Tokenize.
  absl::StatusOr<std::string> WholeText(absl::string_view json,
                                        size_t images) const;

  // The order of a sample's media in its text, all of which have marks. Errors:
  // as Tokenize, as far as texts and marks go.
  absl::StatusOr<MediaOrder> FindOrder(absl::string_view text, TextForm form,
                                       const MediaCounts& media) const;

  // Writes the position ids of a sample's ids to `out`, [position_axes,
  // ids.size()]. `videos`: one grid for each run of videos, where these have
  // positions of their own (three axes). Errors: INVALID_ARGUMENT (the size of
  // `out`; placeholders that do not fit the images and videos).
  absl::Status Place(absl::Span<const int32_t> ids, const SampleImages& images,
                     absl::Span<const GridThw> videos,
                     absl::Span<int32_t> out) const;

  // A video's placeholder: its own, or the one of images.
  int32_t video_placeholder() const;

  const v1::Model& model() const { return model_; }
  const ModelImages& images() const { return images_; }

 private:
  ModelText(const v1::Model& model, ModelImages images,
            const Tokenizer* tokenizer);

  absl::StatusOr<std::vector<ImagePieces>> ImageTexts(
      const SampleImages& images) const;
  // Those of all media, in order.
  absl::StatusOr<MediaPieces> Pieces(
      const SampleImages& images, absl::Span<const StreamText> streams) const;
  absl::StatusOr<std::vector<MediaMark>> FindMarks(
      const SupervisedText& rendered, const MediaCounts& media) const;
  absl::StatusOr<TextTokens> TokenizeConversation(
      std::vector<Turn> turns, absl::Span<const ImagePieces> images,
      std::string* record = nullptr, bool notes_turns = false) const;
  absl::StatusOr<TextTokens> TokenizeDocument(
      absl::string_view text, absl::Span<const ImagePieces> images) const;
  absl::StatusOr<TextTokens> ParsePacked(
      absl::string_view text, bool is_json,
      absl::Span<const ImagePieces> images) const;
  absl::Status CheckTokens() const;
  // INVALID_ARGUMENT if the model takes no media of `kind`, which travels as
  // rows, or nobody knows their tokens.
  absl::Status CheckTakesRows(MediumKind kind) const;
  // Whether the tokenizer or the model's ids have a special token that occurs
  // in an image's text.
  bool HasToken(absl::string_view token) const;

  const v1::Model model_;
  const ModelImages images_;
  const Tokenizer* const tokenizer_;
  const v1::Chat chat_;
  // Videos have a placeholder of their own.
  const bool videos_have_own_id_;
  // Of the checkpoint's own template; else null.
  std::unique_ptr<const TemplateRenderer> renderer_;
  const TurnMarks turn_marks_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_MODEL_TEXT_H_
