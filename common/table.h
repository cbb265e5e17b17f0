#ifndef BALLAST_COMMON_TABLE_H_
#define BALLAST_COMMON_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Text in columns for people to read; machines get --json. Thread-compatible.
//
//   Table table({{"module", Table::kLeft}, {"load", Table::kRight}});
//   table.AddRow({"vision", "12.5"});
//   std::cout << table.ToString();
class Table {
 public:
  // kRight aligns the digits of numbers.
  enum Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = kRight;
  };

  explicit Table(std::vector<Column> columns);

  // Missing cells at the end of a row are blank; cells past the last column are
  // dropped. UTF-8; every code point counts as one column wide. Each is shown
  // as one line (OneLine).
  void AddRow(std::vector<std::string> cells);

  // Titles, a rule, and the rows; columns are two spaces apart, lines have no
  // trailing spaces and each ends in a line break.
  std::string ToString() const;

 private:
  std::string Line(const std::vector<std::string>& cells,
                   const std::vector<size_t>& widths) const;

  std::vector<Column> columns_;
  // An empty row is a rule.
  std::vector<std::vector<std::string>> rows_;
};

// A terminal line that overwrites the one before: begins with a carriage
// return, and ends in a line break once `done` is 1. `done` is clamped to 0..1.
// Pure.
inline std::string ProgressBar(absl::string_view what, double done,
                               absl::string_view more) {
  constexpr int kWidth = 30;
  done = done >= 0 ? std::min(done, 1.0) : 0.0;
  const int filled = static_cast<int>(done * kWidth);
  return absl::StrCat("\r", what, " [", std::string(filled, '#'),
                      std::string(kWidth - filled, '.'),
                      absl::StrFormat("] %3.0f%%  ", 100 * done), more,
                      done == 1 ? "\n" : "");
}

// The time until the work is done, as `done` of it (0..1) took `elapsed`
// seconds: "3 min left", "40 s left". Empty before any of it is done. Pure.
inline std::string TimeLeft(double done, double elapsed) {
  if (!(done > 0) || done >= 1) return "";
  const double seconds = elapsed / done * (1 - done);
  if (seconds < 90) return absl::StrFormat("%.0f s left", seconds);
  if (seconds < 90 * 60) return absl::StrFormat("%.0f min left", seconds / 60);
  return absl::StrFormat("%.1f h left", seconds / 3600);
}

// `text` as one line for a terminal or a log file, so that a record, a file's
// name or a peer's message cannot begin a new line, control the terminal or
// turn the order of what is shown. What would do so becomes \n, \r, \t, \x1b or
// \u202e: control characters of ASCII and of Unicode (also a byte alone that a
// terminal may take for one), separators of lines, marks of direction. All
// other bytes stay. Everything that is printed goes through this: the log, the
// errors of commands, Table and PrintLine. Pure.
std::string OneLine(absl::string_view text);

// Writes the pieces, as of absl::StrCat, to standard output as one line
// (OneLine), with its line break.
void PrintText(absl::string_view text);
template <typename... Piece>
void PrintLine(const Piece&... pieces) {
  PrintText(absl::StrCat(pieces...));
}

}  // namespace ballast

#endif  // BALLAST_COMMON_TABLE_H_
