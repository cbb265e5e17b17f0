#include "server/text/tokenize_text.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "common/status_macros.h"
#include "server/text/chatml.h"
#include "server/text/conversation.h"
#include "server/text/token_writer.h"

namespace ballast {
namespace {

using Kind = TextToken::Kind;

absl::StatusOr<std::vector<TextToken>> TokenizeDocument(
    absl::string_view text, size_t image_count, const TextOptions& options) {
  TokenWriter writer(options.tokenizer);
  if (!absl::StrContains(text, kImageMark)) {
    for (size_t i = 0; i < image_count; ++i) writer.AddImage();
  }
  BALLAST_RETURN_IF_ERROR(writer.AddMarkedText(text, Kind::kSupervised));
  writer.AddSpecial(options.model->token_ids().end_of_text(),
                    Kind::kSupervised);
  return std::move(writer).Finish(image_count);
}

}  // namespace

absl::StatusOr<std::vector<TextToken>> TokenizeText(
    absl::string_view text, TextForm form, size_t image_count,
    const TextOptions& options) {
  if (form == TextForm::kDocument) {
    return TokenizeDocument(text, image_count, options);
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Turn> turns,
                           ParseConversation(text));
  return TokenizeChatml(turns, image_count, *options.tokenizer,
                        options.model->token_ids());
}

std::vector<uint32_t> PlaceholderCounts(absl::Span<const ImageGrid> images,
                                        const v1::Model& model) {
  std::vector<uint32_t> counts;
  counts.reserve(images.size());
  for (const ImageGrid& image : images) {
    counts.push_back(ImageTokens(image, model));
  }
  return counts;
}

}  // namespace ballast
