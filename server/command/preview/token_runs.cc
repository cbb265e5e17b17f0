#include "server/command/preview/token_runs.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

constexpr int32_t kUnsupervised = -100;

std::string NameOf(int32_t id, const v1::TokenIds& special) {
  if (special.has_vision_start() && id == special.vision_start()) {
    return "<|vision_start|>";
  }
  if (special.has_vision_end() && id == special.vision_end()) {
    return "<|vision_end|>";
  }
  if (special.has_im_start() && id == special.im_start()) return "<|im_start|>";
  if (special.has_im_end() && id == special.im_end()) return "<|im_end|>";
  if (special.has_end_of_text() && id == special.end_of_text()) {
    return "<|endoftext|>";
  }
  return absl::StrCat("<|", id, "|>");
}

std::string TextOf(absl::Span<const int32_t> ids, const v1::TokenIds& special,
                   const Tokenizer& tokenizer) {
  std::string text;
  if (tokenizer.Decode(ids, &text).ok()) return text;
  // One by one would cut characters of several tokens: known ids are decoded
  // together.
  text.clear();
  size_t first = 0;
  for (size_t i = 0; i <= ids.size(); ++i) {
    std::string unused;
    if (i < ids.size() && tokenizer.Decode(ids.subspan(i, 1), &unused).ok()) {
      continue;
    }
    std::string known;
    // Cannot fail: each id was decoded.
    tokenizer.Decode(ids.subspan(first, i - first), &known).IgnoreError();
    absl::StrAppend(&text, known);
    if (i < ids.size()) absl::StrAppend(&text, NameOf(ids[i], special));
    first = i + 1;
  }
  return text;
}

}  // namespace

std::vector<TokenRun> FindTokenRuns(absl::Span<const int32_t> ids,
                                    absl::Span<const int32_t> labels,
                                    const v1::TokenIds& special,
                                    const Tokenizer& tokenizer) {
  std::vector<TokenRun> runs;
  for (uint32_t i = 0; i < ids.size(); ++i) {
    const bool image = special.has_image() && ids[i] == special.image();
    const bool video = special.has_video() && ids[i] == special.video();
    const bool supervised = i > 0 && labels[i - 1] != kUnsupervised;
    if (runs.empty() || runs.back().image != image ||
        runs.back().video != video || runs.back().supervised != supervised) {
      runs.push_back({i, 0, image, video, supervised, ""});
    }
    ++runs.back().tokens;
  }
  for (TokenRun& run : runs) {
    if (!run.image && !run.video) {
      run.text = TextOf(ids.subspan(run.first, run.tokens), special, tokenizer);
    }
  }
  return runs;
}

}  // namespace ballast
