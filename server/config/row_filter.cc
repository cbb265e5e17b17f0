#include "server/config/row_filter.h"

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/config/key_report.h"

namespace ballast {
namespace {

constexpr std::pair<const char*, RowFilter::Operator> kOperators[] = {
    // Longer ones first: "<=" begins with "<".
    {"==", RowFilter::Operator::kEqual},  {"!=", RowFilter::Operator::kUnequal},
    {"<=", RowFilter::Operator::kAtMost}, {">=", RowFilter::Operator::kAtLeast},
    {"<", RowFilter::Operator::kLess},    {">", RowFilter::Operator::kGreater},
};

template <typename T>
bool Compare(RowFilter::Operator op, const T& a, const T& b) {
  switch (op) {
    case RowFilter::Operator::kEqual:
      return a == b;
    case RowFilter::Operator::kUnequal:
      return a != b;
    case RowFilter::Operator::kLess:
      return a < b;
    case RowFilter::Operator::kAtMost:
      return a <= b;
    case RowFilter::Operator::kGreater:
      return a > b;
    case RowFilter::Operator::kAtLeast:
      return a >= b;
  }
  return false;
}

}  // namespace

bool RowFilter::Passes(double value) const {
  return !is_text && Compare(op, value, number);
}

bool RowFilter::Passes(absl::string_view value) const {
  return is_text && Compare(op, value, absl::string_view(text));
}

absl::StatusOr<RowFilter> ParseRowFilter(absl::string_view filter) {
  const auto wanted = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", Shown(filter), "; wanted ", what));
  };
  const size_t at = filter.find_first_of("=!<>");
  RowFilter parsed;
  parsed.column = std::string(absl::StripAsciiWhitespace(filter.substr(0, at)));
  if (at == absl::string_view::npos || parsed.column.empty()) {
    return wanted("a column, one of == != < <= > >= and a value");
  }
  absl::string_view rest = filter.substr(at);
  bool found = false;
  for (const auto& [name, op] : kOperators) {
    if (!absl::ConsumePrefix(&rest, name)) continue;
    parsed.op = op;
    found = true;
    break;
  }
  if (!found) return wanted("one of == != < <= > >= after the column");
  rest = absl::StripAsciiWhitespace(rest);
  if (rest.size() >= 2 && rest.front() == '"' && rest.back() == '"') {
    rest = rest.substr(1, rest.size() - 2);
    if (rest.find('"') != absl::string_view::npos) {
      return wanted("no double quote inside the text");
    }
    parsed.is_text = true;
    parsed.text = std::string(rest);
    return parsed;
  }
  const std::string lower = absl::AsciiStrToLower(rest);
  if (lower == "true" || lower == "false") {
    return wanted("1 for true and 0 for false, as booleans are compared");
  }
  if (!absl::SimpleAtod(rest, &parsed.number) ||
      !std::isfinite(parsed.number)) {
    return wanted("a number, or a text in double quotes, as the value");
  }
  // Values are compared as doubles: neighbours of a larger one are equal to it.
  constexpr double kMaxExact = 0x1p53;
  const bool is_equality = parsed.op == RowFilter::Operator::kEqual ||
                           parsed.op == RowFilter::Operator::kUnequal;
  if (is_equality && std::abs(parsed.number) >= kMaxExact) {
    return wanted(
        "a number of less than 2^53 behind == and !=, as others are not told "
        "apart from their neighbours");
  }
  return parsed;
}

}  // namespace ballast
