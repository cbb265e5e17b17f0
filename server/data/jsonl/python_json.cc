#include "server/data/jsonl/python_json.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ballast {
namespace {

// The end of the text that begins at `at`, after its quote.
size_t EndOfText(absl::string_view json, size_t at) {
  for (size_t i = at + 1; i < json.size(); ++i) {
    if (json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      return i + 1;
    }
  }
  return json.size();
}

}  // namespace

std::string FromPythonJson(absl::string_view json) {
  // Every integer of so many digits fits into 64 bits.
  constexpr size_t kDigits = 18;
  absl::ConsumePrefix(&json, "\xEF\xBB\xBF");
  std::string plain;
  plain.reserve(json.size());
  size_t at = 0;
  while (at < json.size()) {
    const char c = json[at];
    if (c == '"') {
      const size_t end = EndOfText(json, at);
      absl::StrAppend(&plain, json.substr(at, end - at));
      at = end;
      continue;
    }
    bool is_word = false;
    for (const absl::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (!absl::StartsWith(json.substr(at), word)) continue;
      plain += "null";
      at += word.size();
      is_word = true;
      break;
    }
    if (is_word) continue;
    if (!absl::ascii_isdigit(c)) {
      plain += c;
      ++at;
      continue;
    }
    // A number to its end, so that digits of a fraction are none of their own.
    size_t end = at;
    bool is_integer = true;
    while (end < json.size() &&
           (absl::ascii_isalnum(json[end]) || json[end] == '.' ||
            ((json[end] == '-' || json[end] == '+') &&
             (json[end - 1] == 'e' || json[end - 1] == 'E')))) {
      is_integer &= absl::ascii_isdigit(json[end]) != 0;
      ++end;
    }
    absl::StrAppend(&plain, json.substr(at, end - at),
                    is_integer && end - at > kDigits ? ".0" : "");
    at = end;
  }
  return plain;
}

}  // namespace ballast
