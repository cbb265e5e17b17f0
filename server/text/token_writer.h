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
#include "server/text/text_token.h"
#include "server/text/tokenizer.h"
#include "server/text/video_text.h"

namespace ballast {

// Builds the tokens of one text from front to back. All text between two images
// is encoded at once, even if its parts differ in kind; a token is supervised
// if any of its bytes is. Thread-compatible.
class TokenWriter {
 public:
  // Neither pointer is owned; both must outlive the writer, as must `videos`,
  // those of the sample. With videos `images` must be its number of images.
  TokenWriter(const Tokenizer* tokenizer, const v1::TokenIds* token_ids,
              size_t images = 0, absl::Span<const VideoText> videos = {})
      : tokenizer_(tokenizer),
        token_ids_(token_ids),
        image_count_(images),
        videos_of_sample_(videos) {}

  // Adds text without image marks.
  void AddText(absl::string_view text, TextToken::Kind kind);

  // Adds text in which every `<image>` is the next image of the sample and
  // every `<video>` the next video. In a sample of videos alone `<image>`
  // stands for a video, too, as LLaVA's data have it.
  void AddMarkedText(absl::string_view text, TextToken::Kind kind);

  // Adds text in which <|im_start|>, <|im_end|> and <|endoftext|> become the
  // ids of model.token_ids, even if the tokenizer has no tokens of these names.
  void AddTemplateText(absl::string_view text, TextToken::Kind kind);

  void AddEndOfText(TextToken::Kind kind);
  void AddImage();
  // Adds the next video: its runs, and the texts before them. Runs are numbered
  // after the images.
  void AddVideo();

  // Returns the tokens; the writer must not be used afterwards. Errors:
  // INVALID_ARGUMENT (the text has marks for other than `image_count` images or
  // the sample's videos, or spells out an image's or video's token, which would
  // pass for a placeholder); the tokenizer's.
  absl::StatusOr<std::vector<TextToken>> Finish(size_t image_count) &&;

 private:
  // Text of one kind within pending_; begins at the end of the previous
  // stretch.
  struct Stretch {
    size_t end;
    TextToken::Kind kind;
  };

  void AddSpecial(absl::string_view content, int32_t id, TextToken::Kind kind);
  // Encodes pending_. The first error stays in status_.
  void EncodePending();
  // The kind of a token that covers [begin, end). `at` is a stretch at or
  // before the token's first one; moved to the first.
  TextToken::Kind KindOf(size_t begin, size_t end, size_t* at) const;

  const Tokenizer* tokenizer_;
  const v1::TokenIds* token_ids_;
  std::vector<TextToken> tokens_;
  std::string pending_;  // not encoded yet
  std::vector<Stretch> stretches_;
  std::vector<int32_t> ids_;  // of the run being encoded
  std::vector<size_t> ends_;
  const size_t image_count_;
  const absl::Span<const VideoText> videos_of_sample_;
  int32_t images_ = 0;
  size_t videos_ = 0;
  int32_t video_runs_ = 0;
  absl::Status status_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKEN_WRITER_H_
