#ifndef BALLAST_SERVER_TEXT_TOKEN_WRITER_H_
#define BALLAST_SERVER_TEXT_TOKEN_WRITER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/text_token.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Builds the tokens of one text from front to back. Thread-compatible.
class TokenWriter {
 public:
  // `tokenizer` must outlive the writer.
  explicit TokenWriter(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Text without image marks. Errors: the tokenizer's.
  absl::Status AddText(absl::string_view text, TextToken::Kind kind);

  // Text in which every `<image>` is the next image of the sample. The pieces
  // between marks are encoded one by one, exactly as they are.
  absl::Status AddMarkedText(absl::string_view text, TextToken::Kind kind);

  void AddSpecial(int32_t id, TextToken::Kind kind) {
    tokens_.push_back({id, kind});
  }

  void AddImage() { tokens_.push_back({images_++, TextToken::Kind::kImage}); }

  // The tokens; the writer is spent. Errors: INVALID_ARGUMENT when the text
  // named other than `image_count` images.
  absl::StatusOr<std::vector<TextToken>> Finish(size_t image_count) &&;

 private:
  const Tokenizer* tokenizer_;
  std::vector<TextToken> tokens_;
  std::vector<int32_t> scratch_;  // ids of the piece being added
  int32_t images_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKEN_WRITER_H_
