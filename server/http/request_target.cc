#include "server/http/request_target.h"

#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"

namespace ballast {
namespace {

std::optional<std::string> Decode(absl::string_view text, bool plus_is_blank) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (text.size() - i < 3 || !absl::ascii_isxdigit(text[i + 1]) ||
          !absl::ascii_isxdigit(text[i + 2])) {
        return std::nullopt;
      }
      c = absl::HexStringToBytes(text.substr(i + 1, 2))[0];
      i += 2;
    } else if (c == '+' && plus_is_blank) {
      c = ' ';
    }
    if (c == '\0') return std::nullopt;
    decoded.push_back(c);
  }
  return decoded;
}

}  // namespace

std::optional<RequestTarget> ParseRequestTarget(absl::string_view text) {
  if (text.empty() || text.front() != '/') return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('?', 1));
  std::optional<std::string> path = Decode(halves.first, false);
  if (!path.has_value()) return std::nullopt;
  RequestTarget target;
  target.path = *std::move(path);
  for (const absl::string_view part : absl::StrSplit(halves.second, '&')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first.empty()) continue;
    target.query[std::string(pair.first)] =
        Decode(pair.second, true).value_or("");
  }
  return target;
}

}  // namespace ballast
