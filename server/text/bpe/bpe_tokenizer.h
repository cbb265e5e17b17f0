#ifndef BALLAST_SERVER_TEXT_BPE_BPE_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_BPE_BPE_TOKENIZER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/bpe/regex.h"
#include "server/text/text_token.h"

namespace ballast {

// A range that normalising changed: [normalized_begin, normalized_end) of the
// result came from [original_begin, original_end).
struct NfcChange {
  size_t normalized_begin;
  size_t normalized_end;
  size_t original_begin;
  size_t original_end;
};

// Converts to Unicode's normalization form C. Returns false, and leaves
// `result` unchanged, if `text` already has that form; this costs one look at
// each character. Otherwise `result` is the normalised text and `changes` the
// ranges that differ, in order; everything else is copied. `text` must be valid
// UTF-8. Takes O(n·log n) time for any number of marks per character.
bool NormalizeNfc(absl::string_view text, std::string* result,
                  std::vector<NfcChange>* changes);

// Maps an end `offset` in the result to the end of the same text in the
// original. An offset inside a changed range maps to that range's end.
size_t OriginalEnd(const std::vector<NfcChange>& changes, size_t offset);

// Cuts text into words, within which pairs are merged. A chain of steps, each
// of which cuts every piece from the step before. Thread-safe.
class PreTokenizer {
 public:
  struct Step {
    // Cuts pieces at its matches; empty: pieces are not cut.
    std::vector<Regex> pattern;  // none or one
    // If set, text that the pattern does not match is dropped; otherwise it
    // becomes separate pieces.
    bool drop_others = false;
    // If set, a piece that does not begin with a space first gets one.
    bool add_prefix_space = false;
  };

  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // Receives one word: its bytes, valid during the call, and its end in `text`.
  using Sink =
      absl::FunctionRef<absl::Status(absl::string_view word, size_t end)>;

  // Calls `sink` for each word of `text`, in order. `text` must be valid UTF-8.
  // Errors: as Regex::Find; the sink's.
  absl::Status Split(absl::string_view text, RegexScratch* scratch,
                     Sink sink) const;

 private:
  // `end` is where the piece ends in the whole text.
  absl::Status Apply(size_t step, absl::string_view piece, size_t end,
                     RegexScratch* scratch, Sink sink) const;

  std::vector<Step> steps_;
};

// Creates the tokenizer of a Hugging Face tokenizer.json with byte-level BPE.
// Its ids equal encode(text, add_special_tokens=False). `json` is the
// file's content. Errors: as ParseTokenizerJson.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(
    absl::string_view json);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_BPE_TOKENIZER_H_
