#ifndef BALLAST_SERVER_TEXT_FAMILY_TOKENS_H_
#define BALLAST_SERVER_TEXT_FAMILY_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/model.pb.h"
#include "server/image_plan/image_text.h"
#include "server/text/text_token.h"
#include "server/text/token_writer.h"
#include "server/text/tokenizer.h"

namespace ballast {

// The text of one image (ImageText).
using ImagePieces = std::vector<ImageTextPiece>;

// A family's text before its runs of placeholders are expanded.
struct FamilyTokens {
  std::vector<TextToken> tokens;
  // Placeholders of each run, which the entries of kind kImage name: those of
  // images in order, and from `first_video` on those of videos that have an id
  // of their own.
  std::vector<uint32_t> runs;
  size_t first_video = SIZE_MAX;
};

// Builds the tokens of one text with a family's images, from front to back. All
// text between two runs of placeholders is encoded at once. Thread-compatible.
class FamilyTokenWriter {
 public:
  // Neither pointer is owned; both must outlive the writer.
  FamilyTokenWriter(const Tokenizer* tokenizer, const v1::TokenIds* ids)
      : writer_(tokenizer, ids) {}

  void AddText(absl::string_view text, TextToken::Kind kind) {
    writer_.AddText(text, kind);
  }
  // As TokenWriter.
  void AddTemplateText(absl::string_view text, TextToken::Kind kind) {
    writer_.AddTemplateText(text, kind);
  }
  void AddEndOfText(TextToken::Kind kind) { writer_.AddEndOfText(kind); }
  // Adds the runs of an image or a video, and its other texts as kImageText.
  void AddImage(const ImagePieces& pieces);

  // The writer must not be used afterwards. Errors: as TokenWriter::Finish.
  absl::StatusOr<FamilyTokens> Finish() &&;

 private:
  TokenWriter writer_;
  // In the order of the text.
  std::vector<uint32_t> runs_;
  std::vector<bool> is_video_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_FAMILY_TOKENS_H_
