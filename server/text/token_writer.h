#ifndef BALLAST_SERVER_TEXT_TOKEN_WRITER_H_
#define BALLAST_SERVER_TEXT_TOKEN_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/text/text_token.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Builds the tokens of one text from front to back. What is added between two
// images is encoded as one text, whatever kinds its stretches have; a token is
// supervised when any of its bytes is. Thread-compatible.
class TokenWriter {
 public:
  // Neither is owned; both must outlive the writer.
  TokenWriter(const Tokenizer* tokenizer, const v1::TokenIds* token_ids)
      : tokenizer_(tokenizer), token_ids_(token_ids) {}

  // Text without image marks.
  void AddText(absl::string_view text, TextToken::Kind kind);

  // Text in which every `<image>` is the next image of the sample.
  void AddMarkedText(absl::string_view text, TextToken::Kind kind);

  // Text in which <|im_start|>, <|im_end|> and <|endoftext|> are the tokens
  // that model.token_ids says, also where the tokenizer knows none of that
  // name.
  void AddTemplateText(absl::string_view text, TextToken::Kind kind);

  void AddEndOfText(TextToken::Kind kind);
  void AddImage();

  // The tokens; the writer is spent. Errors: INVALID_ARGUMENT when the text
  // named other than `image_count` images, or spells out an image's or video's
  // token, which would pass for one of an image's placeholders; the
  // tokenizer's.
  absl::StatusOr<std::vector<TextToken>> Finish(size_t image_count) &&;

 private:
  // Text of one kind within run_; it begins where the one before it ends.
  struct Stretch {
    size_t end;
    TextToken::Kind kind;
  };

  void AddSpecial(absl::string_view content, int32_t id, TextToken::Kind kind);
  // Encodes run_. The first failure stays in status_.
  void EndRun();
  // Of a token that ends at `end`, where the one before it ended at `begin`.
  // `at`: a stretch that is none of the token's, or its first; moved to that.
  TextToken::Kind KindOf(size_t begin, size_t end, size_t* at) const;

  const Tokenizer* tokenizer_;
  const v1::TokenIds* token_ids_;
  std::vector<TextToken> tokens_;
  std::string run_;  // not encoded yet
  std::vector<Stretch> stretches_;
  std::vector<int32_t> ids_;  // of the run being encoded
  std::vector<size_t> ends_;
  int32_t images_ = 0;
  absl::Status status_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKEN_WRITER_H_
