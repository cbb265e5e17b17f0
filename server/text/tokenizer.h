#ifndef BALLAST_SERVER_TEXT_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

// Converts text to token ids. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids`. Adds no special tokens, but matches
  // those that the text spells out. Errors: INVALID_ARGUMENT (not UTF-8, with
  // the byte's offset), RESOURCE_EXHAUSTED (the tokenizer's pattern exceeds its
  // backtracking limit on the text), UNAVAILABLE (a process that the tokenizer
  // needs cannot be started). After an error `ids` may have grown.
  absl::Status Encode(absl::string_view text, std::vector<int32_t>* ids) const {
    return EncodeWithEnds(text, ids, /*ends=*/nullptr);
  }

  // Like Encode. Unless `ends` is null, also appends for each id the end, in
  // bytes of `text`, of the text that it covers; ends never decrease. Each id
  // begins where the previous one ends.
  virtual absl::Status EncodeWithEnds(absl::string_view text,
                                      std::vector<int32_t>* ids,
                                      std::vector<size_t>* ends) const = 0;

  // As EncodeWithEnds, for a text that continues after other tokens, such as an
  // image's. Differs only for tokenizers that add something at the start of a
  // text.
  virtual absl::Status EncodeContinued(absl::string_view text,
                                       std::vector<int32_t>* ids,
                                       std::vector<size_t>* ends) const {
    return EncodeWithEnds(text, ids, ends);
  }

  // Appends the text of `ids`, special tokens spelled out. It equals the
  // encoded text except for normalisation, and may end within a character.
  // Errors: INVALID_ARGUMENT (an id that is not a token).
  virtual absl::Status Decode(absl::Span<const int32_t> ids,
                              std::string* text) const = 0;

  // The id of a special or added token; nullopt if there is no such token.
  virtual std::optional<int32_t> SpecialTokenId(
      absl::string_view content) const = 0;

  // Ids whose role the file itself assigns, as SentencePiece models do; nullopt
  // if it does not. -1: there is no such token.
  struct ModelIds {
    int32_t end_of_text = -1;
    int32_t pad = -1;
  };
  virtual std::optional<ModelIds> model_ids() const { return std::nullopt; }

  // Equal for tokenizers that encode alike; part of the fingerprint.
  virtual std::string digest() const = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKENIZER_H_
