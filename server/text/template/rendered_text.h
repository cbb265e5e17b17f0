#ifndef BALLAST_SERVER_TEXT_TEMPLATE_RENDERED_TEXT_H_
#define BALLAST_SERVER_TEXT_TEMPLATE_RENDERED_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/sample/medium_kind.h"
#include "server/text/template/template_renderer.h"
#include "server/text/text_token.h"
#include "server/text/token_writer.h"

namespace ballast {

// The texts between which a model's template writes what its assistant says;
// both empty if they are not known.
struct TurnMarks {
  std::string begin;
  std::string end;
};

// The marks that the model's file in models/ names (`chat`, or its
// `chat_template`).
TurnMarks GetTurnMarks(const v1::Model& model);

// A rendered text, and what of it is learnt, in order.
struct SupervisedText {
  std::string text;
  std::vector<RenderedConversation::Span> supervised;
  std::string left_out;  // as RenderedConversation
  // What each message of the assistant wrote, in order, and the number of its
  // turn; empty if that is unknown, since the template marks other spans.
  struct Turn {
    RenderedConversation::Span span;
    uint32_t number = 0;
  };
  std::vector<Turn> turns = {};
  std::string weight = "";  // as TextTokens
};

// Renders a conversation, as TemplateRenderer::Request has it, and finds what
// is learnt of it: what `{% generation %}` marks, if the template does; else
// the assistant's turns by `marks`, their end included; else, where the text
// has no such mark, what each message of the assistant adds to the rendering of
// those before it. Of both no empty thought that the template adds. A message
// of `weight` 0 or `train` false is not learnt. Errors: as Render; a data fault
// (spans that do not fit the messages, of which one has a weight below 1).
absl::StatusOr<SupervisedText> RenderSupervised(
    const TemplateRenderer& renderer, const TurnMarks& marks,
    absl::string_view json, bool has_images, bool has_videos = false);

// The place of a medium in a rendered text: bytes [begin, end), which its text
// replaces.
struct MediaMark {
  size_t begin = 0;
  size_t end = 0;
  MediumKind kind = MediumKind::kImage;
};

// Finds them in order. An image's mark is the placeholder of `marks`, with
// `before` and `after` if they surround it; or else the special token with
// which its text begins, as Gemma 3's <start_of_image> and Llama 4's <|image|>;
// or else <image>. A video's is `video`, likewise, or else <video>. Pure.
// Errors: a data fault (another number of marks than images or videos; beside
// images, two of these names, as where a message spells one out).
absl::StatusOr<std::vector<MediaMark>> FindMedia(absl::string_view text,
                                                 const MediaCounts& counts,
                                                 const ImageMarks& marks,
                                                 absl::string_view video);

// The texts of a sample's media, by kind, in order.
using MediaPieces = PerMedium<std::vector<ImagePieces>>;

inline MediaCounts CountsOf(const MediaPieces& pieces) {
  MediaCounts counts;
  for (const MediumKind kind : MediumKinds()) {
    counts[kind] = pieces[kind].size();
  }
  return counts;
}

// Encodes the text with `pieces` in place of `media`, which are as many.
// `notes_turns`: tokens of the assistant's turns name them. Errors: as
// TokenWriter::Finish; a data fault (turns to note, and they are unknown).
absl::StatusOr<TextTokens> TokenizeRendered(const SupervisedText& rendered,
                                            absl::Span<const MediaMark> media,
                                            const MediaPieces& pieces,
                                            const ImageMarks& marks,
                                            const v1::TokenIds& token_ids,
                                            const Tokenizer& tokenizer,
                                            bool notes_turns = false);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEMPLATE_RENDERED_TEXT_H_
