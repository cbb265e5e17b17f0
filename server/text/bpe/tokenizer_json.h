#ifndef BALLAST_SERVER_TEXT_BPE_TOKENIZER_JSON_H_
#define BALLAST_SERVER_TEXT_BPE_TOKENIZER_JSON_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/bpe/added_tokens.h"
#include "server/text/bpe/bpe_model.h"

namespace ballast {

// The content of a tokenizer.json.
struct TokenizerSpec {
  struct Step {
    enum class Kind { kSplit, kByteLevel };
    Kind kind = Kind::kSplit;
    // Split only; in PCRE2's syntax.
    std::string pattern;
    bool drop_others = false;
    // ByteLevel only.
    bool add_prefix_space = false;
    bool use_regex = false;
  };
  bool nfc = false;
  std::vector<Step> steps;  // only the last is of kind kByteLevel
  BpeModel::Spec model;
  std::vector<AddedToken> added_tokens;  // in file order
};

// Parses a Hugging Face tokenizer.json with a byte-level BPE model
// (docs/text.md lists what it may contain). Ignores `decoder`, and
// `post_processor`, whose special tokens are the chat template's task here.
// Errors: INVALID_ARGUMENT (not JSON; an unsupported or unknown key or value,
// with its place in the file, its value and the value wanted).
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(absl::string_view json);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_TOKENIZER_JSON_H_
