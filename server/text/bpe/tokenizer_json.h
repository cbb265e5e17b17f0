#ifndef BALLAST_SERVER_TEXT_BPE_TOKENIZER_JSON_H_
#define BALLAST_SERVER_TEXT_BPE_TOKENIZER_JSON_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/bpe/added_tokens.h"
#include "server/text/bpe/bpe_model.h"

namespace ballast {

// What a tokenizer.json asks for.
struct TokenizerSpec {
  struct Step {
    enum class Kind { kSplit, kByteLevel };
    Kind kind = Kind::kSplit;
    // Split: in PCRE2's syntax.
    std::string pattern;
    bool drop_others = false;
    // ByteLevel.
    bool add_prefix_space = false;
    bool use_regex = false;
  };
  bool nfc = false;
  std::vector<Step> steps;  // the last is the only one of kind kByteLevel
  BpeModel::Spec model;
  std::vector<AddedToken> added_tokens;  // in the order of the file
};

// Reads a Hugging Face tokenizer.json with a byte-level BPE model (docs/text.md
// lists what it may hold). `post_processor` and `decoder` are not looked at:
// the first adds special tokens, which here is the chat template's business.
// Errors: INVALID_ARGUMENT (not JSON; a key or value that is not supported, or
// not understood, with its place in the file, its value and what is wanted).
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(absl::string_view json);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_TOKENIZER_JSON_H_
