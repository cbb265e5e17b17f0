#include "server/text/tokenize_text.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/corpus/data_fault.h"
#include "server/text/conversation.h"
#include "server/text/packed_tokens.h"
#include "server/text/token_writer.h"
#include "server/text/tokenize_conversation.h"

namespace ballast {
namespace {

using Kind = TextToken::Kind;

absl::StatusOr<std::vector<TextToken>> TokenizeDocument(
    absl::string_view text, size_t image_count,
    absl::Span<const VideoText> videos, const TextOptions& options) {
  TokenWriter writer(options.tokenizer, &options.model->token_ids(),
                     image_count, videos);
  if (!absl::StrContains(text, kImageMark) &&
      !absl::StrContains(text, kVideoMark)) {
    for (size_t i = 0; i < image_count; ++i) writer.AddImage();
    for (size_t i = 0; i < videos.size(); ++i) writer.AddVideo();
  }
  writer.AddMarkedText(text, Kind::kSupervised);
  writer.AddEndOfText(Kind::kSupervised);
  return std::move(writer).Finish(image_count);
}

absl::Status CheckNoVideo(absl::Span<const VideoText> videos) {
  if (videos.empty()) return absl::OkStatus();
  return DataFaultError(
      "video is not supported in a text of token ids; write the sample as a "
      "conversation or a document");
}

}  // namespace

absl::StatusOr<std::vector<TextToken>> TokenizeText(
    absl::string_view text, TextForm form,
    absl::Span<const uint32_t> placeholders, absl::Span<const VideoText> videos,
    const TextOptions& options) {
  const v1::TokenIds& ids = options.model->token_ids();
  if (form == TextForm::kPackedBytes || form == TextForm::kPackedJson) {
    BALLAST_RETURN_IF_ERROR(CheckNoVideo(videos));
  }
  if (form == TextForm::kPackedBytes) {
    return ParsePackedBytes(text, placeholders, ids);
  }
  std::string replaced;
  BALLAST_ASSIGN_OR_RETURN(text, ValidText(text, *options.model, &replaced));
  if (form == TextForm::kPackedJson) {
    return ParsePackedJson(text, placeholders, ids);
  }
  if (form == TextForm::kDocument) {
    return TokenizeDocument(text, placeholders.size(), videos, options);
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<Turn> turns,
                           ParseConversation(text));
  return TokenizeConversation(turns, placeholders.size(), videos, options);
}

absl::StatusOr<absl::string_view> ValidText(absl::string_view text,
                                            const v1::Model& model,
                                            std::string* replaced) {
  const absl::Status status = CheckUtf8(text);
  if (status.ok()) return text;
  if (model.on_invalid_utf8() != v1::Model::ON_INVALID_UTF8_REPLACE) {
    return DataFaultError(
        absl::StrCat(status.message(),
                     "; model.on_invalid_utf8: replace puts U+FFFD there"));
  }
  *replaced = ReplaceInvalidUtf8(text);
  return *replaced;
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
