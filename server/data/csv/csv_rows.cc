#include "server/data/csv/csv_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/sample/data_fault.h"

namespace ballast {

size_t RowLength(absl::string_view text, bool is_all) {
  bool is_quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    // Two quotes within a value close and open it.
    if (text[i] == '"') {
      is_quoted = !is_quoted;
    } else if (text[i] == '\n' && !is_quoted) {
      return i + 1;
    }
  }
  return is_all ? text.size() : 0;
}

absl::StatusOr<std::vector<std::string>> ParseRow(absl::string_view row,
                                                  char separator) {
  absl::ConsumeSuffix(&row, "\n");
  absl::ConsumeSuffix(&row, "\r");
  std::vector<std::string> values(1);
  size_t i = 0;
  while (i < row.size()) {
    if (row[i] == separator) {
      values.emplace_back();
      ++i;
      continue;
    }
    if (row[i] != '"') {
      const size_t end = std::min(row.find(separator, i), row.size());
      absl::StrAppend(&values.back(), row.substr(i, end - i));
      i = end;
      continue;
    }
    while (true) {
      const size_t quote = row.find('"', ++i);
      if (quote == row.npos) {
        return DataFaultError(absl::StrCat("value ", values.size(),
                                           ": a quote that does not close"));
      }
      absl::StrAppend(&values.back(), row.substr(i, quote - i));
      i = quote + 1;
      if (i == row.size() || row[i] != '"') break;
      values.back() += '"';
    }
    if (i < row.size() && row[i] != separator) {
      return DataFaultError(absl::StrCat("value ", values.size(),
                                         ": text after its closing quote"));
    }
  }
  return values;
}

char FindSeparator(absl::string_view names) {
  return std::count(names.begin(), names.end(), '\t') >
                 std::count(names.begin(), names.end(), ',')
             ? '\t'
             : ',';
}

}  // namespace ballast
