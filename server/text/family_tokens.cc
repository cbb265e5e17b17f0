#include "server/text/family_tokens.h"

#include <utility>

#include "common/status_macros.h"

namespace ballast {

void FamilyTokenWriter::AddImage(const ImagePieces& pieces) {
  for (const ImageTextPiece& piece : pieces) {
    if (piece.placeholders == 0) {
      writer_.AddText(piece.text, TextToken::Kind::kImageText);
      continue;
    }
    writer_.AddImage();
    runs_.push_back(static_cast<uint32_t>(piece.placeholders));
  }
}

absl::StatusOr<FamilyTokens> FamilyTokenWriter::Finish() && {
  FamilyTokens text;
  BALLAST_ASSIGN_OR_RETURN(text.tokens,
                           std::move(writer_).Finish(runs_.size()));
  text.runs = std::move(runs_);
  return text;
}

}  // namespace ballast
