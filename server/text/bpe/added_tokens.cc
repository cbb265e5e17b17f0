#include "server/text/bpe/added_tokens.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/text/bpe/regex.h"

namespace ballast {
namespace {

// Bounds the time for a text full of partial matches.
constexpr size_t kMaxContent = 1024;

// \w of Rust's regular expressions, which decide `single_word`.
absl::StatusOr<Regex> WordCharacter() {
  BALLAST_ASSIGN_OR_RETURN(
      const std::string categories,
      ToPcre2Pattern("[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}]"));
  return Regex::Create(
      absl::StrCat("[\\p{Alphabetic}\\x{200c}\\x{200d}", categories.substr(1)));
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens,
                                     Regex word_character)
    : tokens_(std::move(tokens)), word_character_(std::move(word_character)) {
  std::vector<size_t> order(tokens_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    return tokens_[a].content < tokens_[b].content;
  });
  AddNode(order, 0, order.size(), 0);
  for (const AddedToken& token : tokens_) {
    begins_[static_cast<unsigned char>(token.content[0])] = true;
  }
}

absl::StatusOr<AddedTokenMatcher> AddedTokenMatcher::Create(
    std::vector<AddedToken> tokens) {
  for (const AddedToken& token : tokens) {
    if (token.content.empty() || token.content.size() > kMaxContent) {
      return absl::InvalidArgumentError(absl::StrCat(
          "added token ", token.id, ": content of ", token.content.size(),
          " bytes, wanted 1 to ", kMaxContent));
    }
  }
  BALLAST_ASSIGN_OR_RETURN(Regex word_character, WordCharacter());
  return AddedTokenMatcher(std::move(tokens), std::move(word_character));
}

// Adds the node for the contents order[begin, end), which share `depth` bytes.
uint32_t AddedTokenMatcher::AddNode(const std::vector<size_t>& order,
                                    size_t begin, size_t end, size_t depth) {
  const auto number = static_cast<uint32_t>(nodes_.size());
  nodes_.emplace_back();
  // Sorted, so contents that end here come first; of equal ones the first
  // counts.
  while (begin < end && tokens_[order[begin]].content.size() == depth) {
    if (nodes_[number].token < 0) {
      nodes_[number].token = static_cast<int32_t>(order[begin]);
    }
    ++begin;
  }
  std::vector<Edge> edges;
  while (begin < end) {
    const auto byte =
        static_cast<unsigned char>(tokens_[order[begin]].content[depth]);
    size_t next = begin + 1;
    while (next < end && static_cast<unsigned char>(
                             tokens_[order[next]].content[depth]) == byte) {
      ++next;
    }
    edges.push_back({byte, AddNode(order, begin, next, depth + 1)});
    begin = next;
  }
  nodes_[number].first_edge = static_cast<uint32_t>(edges_.size());
  nodes_[number].num_edges = static_cast<uint32_t>(edges.size());
  edges_.insert(edges_.end(), edges.begin(), edges.end());
  return number;
}

int32_t AddedTokenMatcher::Longest(absl::string_view text) const {
  int32_t longest = -1;
  const Node* node = &nodes_[0];
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const auto first = edges_.begin() + node->first_edge;
    const auto last = first + node->num_edges;
    const auto edge = std::lower_bound(
        first, last, byte,
        [](const Edge& e, unsigned char b) { return e.byte < b; });
    if (edge == last || edge->byte != byte) break;
    node = &nodes_[edge->node];
    if (node->token >= 0) longest = node->token;
  }
  return longest;
}

absl::StatusOr<bool> AddedTokenMatcher::StandsAlone(
    absl::string_view text, size_t begin, size_t end,
    RegexScratch* scratch) const {
  const auto is_word =
      [&](absl::string_view character) -> absl::StatusOr<bool> {
    BALLAST_ASSIGN_OR_RETURN(const auto match,
                             word_character_.Find(character, 0, scratch));
    return match.has_value();
  };
  if (begin > 0) {
    const size_t bytes = LastCharacter(text.substr(0, begin)).bytes;
    BALLAST_ASSIGN_OR_RETURN(const bool word,
                             is_word(text.substr(begin - bytes, bytes)));
    if (word) return false;
  }
  if (end < text.size()) {
    const size_t bytes = FirstCharacter(text.substr(end)).bytes;
    BALLAST_ASSIGN_OR_RETURN(const bool word, is_word(text.substr(end, bytes)));
    if (word) return false;
  }
  return true;
}

absl::Status AddedTokenMatcher::Split(absl::string_view text,
                                      RegexScratch* scratch, Sink sink) const {
  size_t done = 0;
  size_t i = 0;
  while (i < text.size()) {
    if (!begins_[static_cast<unsigned char>(text[i])]) {
      ++i;
      continue;
    }
    const int32_t found = Longest(text.substr(i));
    if (found < 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[found];
    size_t begin = i;
    size_t end = i + token.content.size();
    // The search continues after the content even if the match is rejected.
    i = end;
    if (token.single_word) {
      BALLAST_ASSIGN_OR_RETURN(const bool alone,
                               StandsAlone(text, begin, end, scratch));
      if (!alone) continue;
    }
    if (token.lstrip) {
      while (begin > done) {
        const Utf8Character c = LastCharacter(text.substr(0, begin));
        if (!IsWhiteSpace(c.code)) break;
        begin -= c.bytes;
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const Utf8Character c = FirstCharacter(text.substr(end));
        if (!IsWhiteSpace(c.code)) break;
        end += c.bytes;
      }
    }
    if (done < begin) BALLAST_RETURN_IF_ERROR(sink(-1, done, begin));
    BALLAST_RETURN_IF_ERROR(sink(token.id, begin, end));
    done = end;
  }
  if (done < text.size()) return sink(-1, done, text.size());
  return absl::OkStatus();
}

}  // namespace ballast
