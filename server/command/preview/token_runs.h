#ifndef BALLAST_SERVER_COMMAND_PREVIEW_TOKEN_RUNS_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_TOKEN_RUNS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/model.pb.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Consecutive tokens of a sample that a reader of its text sees as one.
struct TokenRun {
  uint32_t first = 0;   // of the sample's tokens
  uint32_t tokens = 0;  // at least 1
  bool image = false;   // placeholders of an image
  bool video = false;   // likewise of a video
  // The loss counts these tokens: the model is to predict them.
  bool supervised = false;
  // The tokens' text, special tokens spelled out. Ids that the tokenizer does
  // not know stand as the model's names for them, "<|im_start|>", or as
  // "<|17|>". Empty for placeholders.
  std::string text;
};

// Splits a sample into the longest runs whose tokens are alike. `labels[i]` is
// what the model is to predict after token i, -100 if nothing, so it supervises
// token i + 1; both spans are of one length. `special` are the model's; its
// `image` and `video` mark placeholders. Pure.
std::vector<TokenRun> FindTokenRuns(absl::Span<const int32_t> ids,
                                    absl::Span<const int32_t> labels,
                                    const v1::TokenIds& special,
                                    const Tokenizer& tokenizer);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_TOKEN_RUNS_H_
