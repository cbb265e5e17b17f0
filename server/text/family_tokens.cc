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
    is_video_.push_back(piece.is_video);
  }
}

absl::StatusOr<FamilyTokens> FamilyTokenWriter::Finish() && {
  FamilyTokens text;
  BALLAST_ASSIGN_OR_RETURN(text.tokens,
                           std::move(writer_).Finish(runs_.size()));
  std::vector<int32_t> numbers(runs_.size());
  for (const bool videos : {false, true}) {
    if (videos) text.first_video = text.runs.size();
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (is_video_[i] != videos) continue;
      numbers[i] = static_cast<int32_t>(text.runs.size());
      text.runs.push_back(runs_[i]);
    }
  }
  for (TextToken& token : text.tokens) {
    if (token.kind == TextToken::Kind::kImage) token.id = numbers[token.id];
  }
  return text;
}

}  // namespace ballast
