#ifndef BALLAST_SERVER_DATA_CSV_CSV_ROWS_H_
#define BALLAST_SERVER_DATA_CSV_CSV_ROWS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Tables of text as RFC 4180 has them: values between separators, in double
// quotes where they hold a separator, a quote (written twice) or a line's end.
// All functions are pure.

// The length of the first row of `text` with the end of its line; 0 if `text`
// does not hold its end. `is_all`: no more text follows, which ends a row.
size_t RowLength(absl::string_view text, bool is_all);

// The values of one row. Errors: a data fault (a text after a closing quote; a
// quote that does not close).
absl::StatusOr<std::vector<std::string>> ParseRow(absl::string_view row,
                                                  char separator);

// A tab if the line of names has more tabs than commas, else a comma.
char FindSeparator(absl::string_view names);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_CSV_CSV_ROWS_H_
