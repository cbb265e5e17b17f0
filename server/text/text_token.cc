#include "server/text/text_token.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using Kind = TextToken::Kind;

}  // namespace

TextCounts CountTokens(const TextTokens& text) {
  TextCounts counts;
  for (size_t i = 0; i < text.tokens.size(); ++i) {
    const TextToken& token = text.tokens[i];
    if (token.kind == Kind::kImage) {
      counts.image_tokens += text.runs[token.id];
      continue;
    }
    ++counts.text_tokens;
    // The first token follows no other, so no label names it.
    if (token.IsLearnt() && i > 0) ++counts.label_tokens;
  }
  return counts;
}

absl::Status LimitTokens(uint32_t max_tokens, v1::Batch::OnTooLong policy,
                         TextTokens* text, std::vector<uint32_t>* places) {
  const TextCounts counts = CountTokens(*text);
  if (counts.total() <= max_tokens) return absl::OkStatus();
  uint64_t runs = 0;
  uint64_t unshrinkable = counts.image_tokens;
  for (const TextToken& token : text->tokens) {
    runs += token.kind == Kind::kImage;
    unshrinkable += token.kind == Kind::kImageText;
  }
  if (policy != v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT) {
    return AsDataFault(absl::OutOfRangeError(absl::StrCat(
        "sample has ", counts.total(), " tokens (", unshrinkable, " of ", runs,
        " runs of placeholders), over batch.max_tokens ", max_tokens,
        "; raise it, lower model.max_pixels, or set batch.on_too_long to "
        "truncate_text or skip")));
  }
  if (unshrinkable > max_tokens) {
    return AsDataFault(absl::OutOfRangeError(
        absl::StrCat(runs, " runs of placeholders take ", unshrinkable,
                     " tokens, over batch.max_tokens ", max_tokens,
                     ", and images are never truncated; raise it or lower "
                     "model.max_pixels")));
  }
  uint64_t surplus = counts.total() - max_tokens;
  // Goes from the end, keeps the images and drops `surplus` other entries.
  auto kept = text->tokens.end();
  auto next = text->tokens.end();
  while (surplus > 0) {
    --next;
    if (next->kind == Kind::kImage || next->kind == Kind::kImageText) {
      *--kept = *next;
      if (places != nullptr) {
        (*places)[kept - text->tokens.begin()] =
            (*places)[next - text->tokens.begin()];
      }
    } else {
      --surplus;
    }
  }
  if (places != nullptr) {
    places->erase(places->begin() + (next - text->tokens.begin()),
                  places->begin() + (kept - text->tokens.begin()));
  }
  text->tokens.erase(next, kept);
  return absl::OkStatus();
}

TextSample ExpandTokens(const TextTokens& text, const v1::TokenIds& token_ids) {
  const TextCounts counts = CountTokens(text);
  TextSample sample;
  sample.ids.reserve(counts.total());
  sample.labels.reserve(counts.total());
  // A token's label belongs to the token before it, so the labels are shifted
  // by one: the first is dropped, and one is appended.
  for (const TextToken& token : text.tokens) {
    if (token.kind == Kind::kImage) {
      const size_t run = text.runs[token.id];
      const auto number = static_cast<size_t>(token.id);
      const int32_t id = number >= text.first_audio   ? token_ids.audio()
                         : number >= text.first_video ? token_ids.video()
                                                      : token_ids.image();
      sample.ids.insert(sample.ids.end(), run, id);
      sample.labels.insert(sample.labels.end(), run, kUnsupervised);
    } else {
      sample.ids.push_back(token.id);
      sample.labels.push_back(token.kind == Kind::kEnd ? token_ids.end_of_text()
                              : token.IsLearnt()       ? token.id
                                                       : kUnsupervised);
    }
  }
  if (!sample.labels.empty()) {
    sample.labels.erase(sample.labels.begin());
    sample.labels.push_back(kUnsupervised);
  }
  sample.label_tokens = static_cast<uint32_t>(counts.label_tokens);
  return sample;
}

}  // namespace ballast
