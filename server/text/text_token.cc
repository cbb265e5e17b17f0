#include "server/text/text_token.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

constexpr int32_t kUnsupervised = -100;

using Kind = TextToken::Kind;

}  // namespace

TextCounts CountTokens(absl::Span<const TextToken> tokens,
                       absl::Span<const uint32_t> image_tokens, uint32_t ends) {
  TextCounts counts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].kind == Kind::kImage) {
      counts.text_tokens += ends;
      counts.image_tokens += image_tokens[tokens[i].id];
      continue;
    }
    ++counts.text_tokens;
    // The first token follows no other, so no label names it.
    if (tokens[i].kind == Kind::kSupervised && i > 0) ++counts.label_tokens;
  }
  return counts;
}

absl::Status LimitTokens(absl::Span<const uint32_t> image_tokens,
                         uint32_t max_tokens, v1::Batch::OnTooLong policy,
                         std::vector<TextToken>* tokens, uint32_t ends) {
  const TextCounts counts = CountTokens(*tokens, image_tokens, ends);
  if (counts.total() <= max_tokens) return absl::OkStatus();
  uint64_t images = 0;
  uint64_t unshrinkable = counts.image_tokens;
  for (const TextToken& token : *tokens) {
    images += token.kind == Kind::kImage;
    unshrinkable += token.kind == Kind::kImage       ? ends
                    : token.kind == Kind::kImageText ? 1
                                                     : 0;
  }
  const absl::string_view runs =
      ends == 0 ? " runs of placeholders" : " images";
  if (policy != v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT) {
    return AsDataFault(absl::OutOfRangeError(absl::StrCat(
        "sample has ", counts.total(), " tokens (", unshrinkable, " of ",
        images, runs, "), over batch.max_tokens ", max_tokens,
        "; raise it, lower model.max_pixels, or set batch.on_too_long to "
        "truncate_text or skip")));
  }
  if (unshrinkable > max_tokens) {
    return AsDataFault(absl::OutOfRangeError(
        absl::StrCat(images, runs, " take ", unshrinkable,
                     " tokens, over batch.max_tokens ", max_tokens,
                     ", and images are never truncated; raise it or lower "
                     "model.max_pixels")));
  }
  uint64_t surplus = counts.total() - max_tokens;
  // Goes from the end, keeps the images and drops `surplus` other entries.
  auto kept = tokens->end();
  auto next = tokens->end();
  while (surplus > 0) {
    --next;
    if (next->kind == Kind::kImage || next->kind == Kind::kImageText) {
      *--kept = *next;
    } else {
      --surplus;
    }
  }
  tokens->erase(next, kept);
  return absl::OkStatus();
}

TextSample ExpandTokens(absl::Span<const TextToken> tokens,
                        absl::Span<const uint32_t> image_tokens,
                        const v1::TokenIds& token_ids, uint32_t ends,
                        size_t first_video) {
  const TextCounts counts = CountTokens(tokens, image_tokens, ends);
  TextSample sample;
  sample.ids.reserve(counts.total());
  sample.labels.reserve(counts.total());
  // A token's label belongs to the token before it, so the labels are shifted
  // by one: the first is dropped, and one is appended.
  for (const TextToken& token : tokens) {
    if (token.kind == Kind::kImage) {
      const size_t run = image_tokens[token.id];
      const size_t span = run + ends;
      if (ends != 0) sample.ids.push_back(token_ids.vision_start());
      const bool is_video = static_cast<size_t>(token.id) >= first_video;
      sample.ids.insert(sample.ids.end(), run,
                        is_video ? token_ids.video() : token_ids.image());
      if (ends != 0) sample.ids.push_back(token_ids.vision_end());
      sample.labels.insert(sample.labels.end(), span, kUnsupervised);
    } else {
      sample.ids.push_back(token.id);
      sample.labels.push_back(token.kind == Kind::kSupervised ? token.id
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
