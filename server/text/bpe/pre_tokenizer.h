#ifndef BALLAST_SERVER_TEXT_BPE_PRE_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_BPE_PRE_TOKENIZER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/text/bpe/regex.h"

namespace ballast {

// Cuts text into the words within which pairs are merged: a chain of steps,
// each of which cuts every piece that the one before it made. Thread-safe.
class PreTokenizer {
 public:
  struct Step {
    // How pieces are cut; not at all where it has none.
    std::vector<Regex> pattern;  // none or one
    // What the pattern does not match: kept as pieces of its own, or dropped.
    bool drop_others = false;
    // First, before a piece that does not begin with a space one is put.
    bool add_prefix_space = false;
  };

  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // One word: its bytes, which live during the call, and where they end in
  // `text`.
  using Sink =
      absl::FunctionRef<absl::Status(absl::string_view word, size_t end)>;

  // Calls `sink` for each word of `text`, in order. `text` must be valid UTF-8.
  // Errors: Regex::Find's, the sink's.
  absl::Status Split(absl::string_view text, RegexScratch* scratch,
                     Sink sink) const;

 private:
  // `end`: where the piece ends in the whole text.
  absl::Status Apply(size_t step, absl::string_view piece, size_t end,
                     RegexScratch* scratch, Sink sink) const;

  std::vector<Step> steps_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_PRE_TOKENIZER_H_
