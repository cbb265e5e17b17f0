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

// A token that is found in the text before anything else is done to it.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
  bool normalized = false;   // looked for in the normalised text
  bool special = false;
};

// Finds a set of added tokens in texts: at each place the longest, from left to
// right. Thread-safe.
class AddedTokenMatcher {
 public:
  // Errors: INVALID_ARGUMENT (an empty content, one above 1024 bytes).
  static absl::StatusOr<AddedTokenMatcher> Create(
      std::vector<AddedToken> tokens);

  // A piece of the text: a token, or (-1) what stands between tokens, which is
  // never empty. [begin, end) are its place.
  using Sink =
      absl::FunctionRef<absl::Status(int32_t id, size_t begin, size_t end)>;

  // Calls `sink` for all pieces of `text`, in order; for an empty text never.
  // Errors: the sink's, Regex::Find's.
  absl::Status Split(absl::string_view text, RegexScratch* scratch,
                     Sink sink) const;

 private:
  // A node of the tree of all contents. Children stand in `edges_`, sorted.
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
  // The number of the longest token that `text` begins with, or -1.
  int32_t Longest(absl::string_view text) const;
  // Whether neither side of [begin, end) goes on with a character of a word.
  absl::StatusOr<bool> StandsAlone(absl::string_view text, size_t begin,
                                   size_t end, RegexScratch* scratch) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;  // the root is the first
  std::vector<Edge> edges_;
  bool begins_[256] = {};  // some content begins with this byte
  Regex word_character_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_ADDED_TOKENS_H_
