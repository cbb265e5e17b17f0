#include "server/text/bpe/pre_tokenizer.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

absl::Status PreTokenizer::Split(absl::string_view text, RegexScratch* scratch,
                                 Sink sink) const {
  return Apply(0, text, text.size(), scratch, sink);
}

absl::Status PreTokenizer::Apply(size_t number, absl::string_view piece,
                                 size_t end, RegexScratch* scratch,
                                 Sink sink) const {
  if (piece.empty()) return absl::OkStatus();
  if (number == steps_.size()) return sink(piece, end);
  const Step& step = steps_[number];
  std::string prefixed;
  if (step.add_prefix_space && piece[0] != ' ') {
    prefixed = absl::StrCat(" ", piece);
    piece = prefixed;
  }
  if (step.pattern.empty()) {
    return Apply(number + 1, piece, end, scratch, sink);
  }
  // Maps a place in `piece` to the whole text by its distance from the end,
  // which a prefixed space does not change.
  const auto put = [&](size_t from, size_t to) {
    return Apply(number + 1, piece.substr(from, to - from),
                 end - (piece.size() - to), scratch, sink);
  };
  size_t done = 0;
  while (done < piece.size()) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<Regex::Match> match,
                             step.pattern[0].Find(piece, done, scratch));
    const size_t begin = match ? match->begin : piece.size();
    if (begin > done && !step.drop_others) {
      BALLAST_RETURN_IF_ERROR(put(done, begin));
    }
    if (!match) break;
    BALLAST_RETURN_IF_ERROR(put(match->begin, match->end));
    done = match->end;
  }
  return absl::OkStatus();
}

}  // namespace ballast
