#include "server/text/token_writer.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/text/conversation.h"

namespace ballast {

absl::Status TokenWriter::AddText(absl::string_view text,
                                  TextToken::Kind kind) {
  scratch_.clear();
  BALLAST_RETURN_IF_ERROR(tokenizer_->Encode(text, &scratch_));
  for (const int32_t id : scratch_) tokens_.push_back({id, kind});
  return absl::OkStatus();
}

absl::Status TokenWriter::AddMarkedText(absl::string_view text,
                                        TextToken::Kind kind) {
  bool first = true;
  for (const absl::string_view piece : SplitAtImageMarks(text)) {
    if (!first) AddImage();
    first = false;
    if (piece.empty()) continue;
    BALLAST_RETURN_IF_ERROR(AddText(piece, kind));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TextToken>> TokenWriter::Finish(
    size_t image_count) && {
  if (static_cast<size_t>(images_) != image_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "text has ", images_, " ", kImageMark, " marks, the sample has ",
        image_count, " images; each mark stands for one image"));
  }
  return std::move(tokens_);
}

}  // namespace ballast
