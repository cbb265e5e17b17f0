#ifndef BALLAST_COMMON_TABLE_H_
#define BALLAST_COMMON_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

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

  // Missing cells at the end of a row are blank; those past the last column are
  // dropped. UTF-8; every code point counts as one column wide.
  void AddRow(std::vector<std::string> cells);
  // A line of dashes, such as above a row of sums.
  void AddRule();

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

}  // namespace ballast

#endif  // BALLAST_COMMON_TABLE_H_
