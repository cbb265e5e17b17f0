#ifndef BALLAST_SERVER_CONFIG_ROW_FILTER_H_
#define BALLAST_SERVER_CONFIG_ROW_FILTER_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// One of `sources[].filters`: compares a column of a row with a constant.
struct RowFilter {
  enum class Operator { kEqual, kUnequal, kLess, kAtMost, kGreater, kAtLeast };
  std::string column;
  Operator op = Operator::kEqual;
  // The constant is a text, else a number.
  bool is_text = false;
  double number = 0;
  std::string text;

  // Whether a row passes whose column has this value. Texts compare by bytes.
  bool Passes(double value) const;
  bool Passes(absl::string_view value) const;
};

// Parses COLUMN OP VALUE: a column's name, one of == != < <= > >=, and a finite
// number or a text in double quotes, without escapes. White space between them
// is free; a name may contain spaces, but none of = ! < >. Errors:
// INVALID_ARGUMENT ("found ...; wanted ...").
absl::StatusOr<RowFilter> ParseRowFilter(absl::string_view filter);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_ROW_FILTER_H_
