#include "server/text/text_measure.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "server/config/image_family_config.h"
#include "server/text/text_token.h"
#include "server/text/text_version.h"

namespace ballast {
namespace {

// Serialises the whole template: any difference gives another text.
std::string OneLine(const v1::ChatTemplate& chat) {
  std::vector<std::string> fields = {chat.begin()};
  for (const v1::ChatTemplate::Turn* turn :
       {&chat.system(), &chat.user(), &chat.assistant()}) {
    fields.insert(fields.end(), {turn->prefix(), turn->end(), turn->suffix(),
                                 turn->supervised() ? "learnt" : ""});
  }
  fields.push_back(chat.trim() ? "trim" : "");
  for (std::string& field : fields) field = absl::CHexEscape(field);
  return absl::StrJoin(fields, "|");
}

uint32_t Saturated(uint64_t count) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(count, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

absl::StatusOr<MeasuredText> MeasureText(absl::string_view text, TextForm form,
                                         absl::Span<const ImageGrid> images,
                                         const TextOptions& options,
                                         absl::Span<const VideoText> videos) {
  std::vector<uint32_t> placeholders =
      PlaceholderCounts(images, *options.model);
  BALLAST_ASSIGN_OR_RETURN(
      std::vector<TextToken> tokens,
      TokenizeText(text, form, placeholders, videos, options));
  AppendRuns(videos, &placeholders);
  const size_t whole = tokens.size();
  const absl::Status fits = LimitTokens(placeholders, options.max_tokens,
                                        options.on_too_long, &tokens);
  const TextCounts counts = CountTokens(tokens, placeholders);
  MeasuredText measured;
  measured.text_tokens = Saturated(counts.text_tokens);
  measured.label_tokens = Saturated(counts.label_tokens);
  measured.too_long = !fits.ok();
  const bool is_packed =
      form == TextForm::kPackedBytes || form == TextForm::kPackedJson;
  measured.limited = tokens.size() != whole || !videos.empty() ||
                     (is_packed && !images.empty());
  return measured;
}

bool TextFits(uint32_t text_tokens, absl::Span<const ImageGrid> images,
              const TextOptions& options) {
  uint64_t total = text_tokens;
  for (const uint32_t count : PlaceholderCounts(images, *options.model)) {
    total += count;
  }
  return total <= options.max_tokens;
}

std::string TextLengthKey(const v1::Model& model, const Tokenizer& tokenizer) {
  const v1::TokenIds& ids = model.token_ids();
  // The marks of an image depend on how it is cut.
  const std::string family =
      model.has_image_family()
          ? FamilyYaml(FamilyOfConfig(model.image_family()))
          : "";
  return absl::StrCat(
      "text_version=", kTextVersion, "\ntokenizer=", tokenizer.digest(),
      "\nchat_template=", model.chat_template(), "\nimage=", ids.image(),
      "\nvideo=", ids.video(), "\nvision_start=", ids.vision_start(),
      "\nvision_end=", ids.vision_end(), "\nim_start=", ids.im_start(),
      "\nim_end=", ids.im_end(), "\nend_of_text=", ids.end_of_text(),
      "\ncustom_template=", OneLine(model.custom_template()),
      "\nsystem_prompt=", absl::CHexEscape(model.system_prompt()),
      "\non_invalid_utf8=", static_cast<int>(model.on_invalid_utf8()), "\n",
      family);
}

std::string TextLimitKey(const v1::Config& config) {
  const v1::Model& model = config.model();
  return absl::StrCat(
      "min_pixels=", model.min_pixels(), "\nmax_pixels=", model.max_pixels(),
      "\npatch=", model.patch(), "\nmerge=", model.merge(),
      "\nmax_tokens=", config.batch().max_tokens(),
      "\non_too_long=", static_cast<int>(config.batch().on_too_long()), "\n");
}

}  // namespace ballast
