#ifndef BALLAST_SERVER_TEXT_TOKEN_WRITER_H_
#define BALLAST_SERVER_TEXT_TOKEN_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/media/image_plan/image_text.h"
#include "server/text/text_token.h"

namespace ballast {

// The text of one image or video (ImageText).
using ImagePieces = std::vector<ImageTextPiece>;

// Builds the tokens of one text from front to back. All text between two runs
// of placeholders is encoded at once, even if its parts differ in kind; a token
// is supervised if any of its bytes is. Thread-compatible.
class TokenWriter {
 public:
  // Nothing is owned; all must outlive the writer. `marks` are the model's,
  // whose `before` and `after` are the tokens vision_start and vision_end where
  // `token_ids` has these ids.
  TokenWriter(const Tokenizer* tokenizer, const v1::TokenIds* token_ids,
              const ImageMarks* marks);

  // Appends all that is added from now on to `text`, too, with an image mark
  // for each image or video. Not owned.
  void RecordTo(std::string* text) { record_ = text; }

  // All that is added from now on is of turn `turn`, from 1; 0: of none.
  void SetTurn(uint32_t turn) { turn_ = turn; }

  // Adds text without image marks.
  void AddText(absl::string_view text, TextToken::Kind kind);

  // Adds text in which <|im_start|>, <|im_end|> and <|endoftext|> become the
  // ids of model.token_ids, where these are at least 0, even if the tokenizer
  // has no tokens of these names.
  void AddTemplateText(absl::string_view text, TextToken::Kind kind);

  void AddEndOfText(TextToken::Kind kind);

  // What follows is encoded as the beginning of a text is, and not as its
  // continuation.
  void Begin();

  // Adds the runs of an image or a video, and its other texts as kImageText.
  void AddImage(const ImagePieces& pieces);

  // Returns the text; the writer must not be used afterwards. Errors:
  // INVALID_ARGUMENT (the text spells out an image's or video's token, which
  // would pass for a placeholder); the tokenizer's.
  absl::StatusOr<TextTokens> Finish() &&;

 private:
  // Text of one kind and turn within pending_; begins at the end of the
  // previous stretch.
  struct Stretch {
    size_t end;
    TextToken::Kind kind;
    uint32_t turn;
  };
  // A token by its spelling.
  struct Named {
    absl::string_view text;
    int32_t id;
  };

  // Adds text in which the names become their ids, where these are at least 0:
  // `as_text`, by the tokenizer if it has the token of that name and id.
  void AddNamed(absl::string_view text, absl::Span<const Named> names,
                bool as_text, TextToken::Kind kind);
  void AddSpecial(absl::string_view content, int32_t id, TextToken::Kind kind);
  void AddToken(const TextToken& token);
  // Encodes pending_. The first error stays in status_.
  void EncodePending();
  // The stretch whose kind and turn a token has that covers [begin, end). `at`
  // is a stretch at or before the token's first one; moved to the first.
  const Stretch& GetStretch(size_t begin, size_t end, size_t* at) const;

  std::string* record_ = nullptr;
  uint32_t turn_ = 0;
  bool begins_ = true;  // what is encoded next begins a text
  const Tokenizer* tokenizer_;
  const v1::TokenIds* token_ids_;
  const Named template_names_[3];
  const Named mark_names_[2];
  std::vector<TextToken> tokens_;
  std::string pending_;  // not encoded yet
  std::vector<Stretch> stretches_;
  std::vector<int32_t> ids_;  // of the run being encoded
  std::vector<size_t> ends_;
  // In the order of the text.
  std::vector<uint32_t> runs_;
  std::vector<uint8_t> kinds_;  // 0: an image's; 1: a video's; 2: a clip's
  absl::Status status_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKEN_WRITER_H_
