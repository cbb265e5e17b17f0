#ifndef BALLAST_SERVER_TEXT_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

// Text to token ids. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids`; adds no special tokens of its own, but
  // finds those that the text spells out. Errors: INVALID_ARGUMENT (not UTF-8,
  // with the byte's offset), RESOURCE_EXHAUSTED (a text that the tokenizer's
  // pattern cannot cut within its bounds), UNAVAILABLE (the machine denies a
  // process that it takes). After an error `ids` may have grown.
  absl::Status Encode(absl::string_view text, std::vector<int32_t>* ids) const {
    return EncodeWithEnds(text, ids, /*ends=*/nullptr);
  }

  // The same, and, unless `ends` is null, appends to it where in `text` what
  // each id stands for ends, in bytes: never less than for the id before. An id
  // begins where the one before it ends.
  virtual absl::Status EncodeWithEnds(absl::string_view text,
                                      std::vector<int32_t>* ids,
                                      std::vector<size_t>* ends) const = 0;

  // The same for a text that goes on after other tokens, those of an image say.
  // Only tokenizers that put something before a text's beginning tell the two
  // apart.
  virtual absl::Status EncodeContinued(absl::string_view text,
                                       std::vector<int32_t>* ids,
                                       std::vector<size_t>* ends) const {
    return EncodeWithEnds(text, ids, ends);
  }

  // Appends what `ids` stand for, special tokens spelled out. It is the text
  // that was encoded but for what the tokenizer normalises, and may end within
  // a character. Errors: INVALID_ARGUMENT (an id that is no token).
  virtual absl::Status Decode(absl::Span<const int32_t> ids,
                              std::string* text) const = 0;

  // The id of a special or added token, if it is one.
  virtual std::optional<int32_t> SpecialTokenId(
      absl::string_view content) const = 0;

  // Ids that the file itself gives a meaning, as SentencePiece models do; null
  // where it does not say. -1: it has no such token.
  struct ModelIds {
    int32_t end_of_text = -1;
    int32_t pad = -1;
  };
  virtual std::optional<ModelIds> model_ids() const { return std::nullopt; }

  // Equal for tokenizers that encode alike; part of the fingerprint.
  virtual std::string digest() const = 0;
};

// `bytes` (one token a byte, ids 0..255), or the path of a Hugging Face
// tokenizer.json with a byte-level BPE model, or of a SentencePiece model.
// Errors name the file: NOT_FOUND and others of the disk, INVALID_ARGUMENT (not
// such a file; what it asks for is not supported, with the key), UNAVAILABLE
// and FAILED_PRECONDITION (libsentencepiece cannot be run here).
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(
    const std::string& name_or_path);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TOKENIZER_H_
