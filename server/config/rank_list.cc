#include "server/config/rank_list.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr uint32_t kMaxRanks = uint32_t{1} << 20;

absl::StatusOr<uint32_t> ParseRank(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  uint32_t rank = 0;
  // SimpleAtoi accepts a sign, which a rank must not have.
  if (text.empty() ||
      !std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &rank) || rank >= kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(text.substr(0, 40)),
                     "\" is not a rank of 0 to ", kMaxRanks - 1));
  }
  return rank;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ParseRankList(absl::string_view text) {
  std::vector<uint32_t> ranks;
  if (absl::StripAsciiWhitespace(text).empty()) return ranks;
  std::vector<bool> seen(kMaxRanks);
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    BALLAST_ASSIGN_OR_RETURN(const uint32_t first, ParseRank(ends.first));
    uint32_t last = first;
    if (absl::StrContains(part, '-')) {
      BALLAST_ASSIGN_OR_RETURN(last, ParseRank(ends.second));
    }
    if (last < first) {
      return absl::InvalidArgumentError(
          absl::StrCat("the range ", first, "-", last, " falls"));
    }
    for (uint32_t rank = first; rank <= last; ++rank) {
      if (seen[rank]) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, " stands twice"));
      }
      seen[rank] = true;
      ranks.push_back(rank);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string FormatRankList(absl::Span<const uint32_t> ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", ranks[i]);
    if (end - i > 1) absl::StrAppend(&text, "-", ranks[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace ballast
