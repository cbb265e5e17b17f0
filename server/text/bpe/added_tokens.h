#ifndef BALLAST_SERVER_TEXT_BPE_ADDED_TOKENS_H_
#define BALLAST_SERVER_TEXT_BPE_ADDED_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/bpe/regex.h"

namespace ballast {

// A token that is searched for in the text before any other processing.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // does not match within a word
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // searched for in the normalised text
  bool special = false;
};

// Finds a set of added tokens in texts: the longest at each place, from left to
// right. Thread-safe.
class AddedTokenMatcher {
 public:
  // Errors: INVALID_ARGUMENT (an empty content, one above 1024 bytes).
  static absl::StatusOr<AddedTokenMatcher> Create(
      std::vector<AddedToken> tokens);

  // Receives a piece of the text, [begin, end): a token, or (-1) the text
  // between tokens, which is never empty.
  using Sink =
      absl::FunctionRef<absl::Status(int32_t id, size_t begin, size_t end)>;

  // Calls `sink` for every piece of `text`, in order; for an empty text never.
  // Errors: the sink's; as Regex::Find.
  absl::Status Split(absl::string_view text, RegexScratch* scratch,
                     Sink sink) const;

 private:
  // A node of the trie of all contents. Children are in `edges_`, sorted.
  struct Node {
    uint32_t first_edge = 0;
    uint32_t num_edges = 0;
    int32_t token = -1;  // the content that ends here
  };
  struct Edge {
    unsigned char byte;
    uint32_t node;
  };

  AddedTokenMatcher(std::vector<AddedToken> tokens, Regex word_character);

  uint32_t AddNode(const std::vector<size_t>& order, size_t begin, size_t end,
                   size_t depth);
  // The number of the longest token that `text` starts with, or -1.
  int32_t Longest(absl::string_view text) const;
  // True if no character of a word adjoins [begin, end).
  absl::StatusOr<bool> StandsAlone(absl::string_view text, size_t begin,
                                   size_t end, RegexScratch* scratch) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;  // the root is the first
  std::vector<Edge> edges_;
  bool begins_[256] = {};  // some content starts with this byte
  Regex word_character_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_ADDED_TOKENS_H_
