#include "server/text/text_measure.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/text/text_token.h"

namespace ballast {
namespace {

// Raise it whenever the same text and settings come to give other lengths.
constexpr int kTextVersion = 1;

uint32_t Saturated(uint64_t count) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(count, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

absl::StatusOr<MeasuredText> MeasureText(absl::string_view text, TextForm form,
                                         absl::Span<const ImageGrid> images,
                                         const TextOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(std::vector<TextToken> tokens,
                           TokenizeText(text, form, images.size(), options));
  const std::vector<uint32_t> placeholders =
      PlaceholderCounts(images, *options.model);
  const absl::Status fits = LimitTokens(placeholders, options.max_tokens,
                                        options.on_too_long, &tokens);
  const TextCounts counts = CountTokens(tokens, placeholders);
  return MeasuredText{Saturated(counts.text_tokens),
                      Saturated(counts.label_tokens), !fits.ok()};
}

std::string TextContentKey(const v1::Config& config,
                           const Tokenizer& tokenizer) {
  const v1::Model& model = config.model();
  const v1::TokenIds& ids = model.token_ids();
  return absl::StrCat(
      "text_version=", kTextVersion, "\ntokenizer=", tokenizer.digest(),
      "\nchat_template=", model.chat_template(),
      "\nmin_pixels=", model.min_pixels(), "\nmax_pixels=", model.max_pixels(),
      "\npatch=", model.patch(), "\nmerge=", model.merge(),
      "\nexif_orientation=", model.exif_orientation(), "\nimage=", ids.image(),
      "\nvideo=", ids.video(), "\nvision_start=", ids.vision_start(),
      "\nvision_end=", ids.vision_end(), "\nim_start=", ids.im_start(),
      "\nim_end=", ids.im_end(), "\nend_of_text=", ids.end_of_text(),
      "\nmax_tokens=", config.batch().max_tokens(),
      "\non_too_long=", static_cast<int>(config.batch().on_too_long()), "\n");
}

}  // namespace ballast
