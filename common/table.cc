#include "common/table.h"

#include <utility>

namespace ballast {

namespace {

size_t Width(const std::string& text) {
  // Continuation bytes of UTF-8 are 10xxxxxx.
  return std::count_if(text.begin(), text.end(),
                       [](unsigned char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Line(const std::vector<std::string>& cells,
                        const std::vector<size_t>& widths) const {
  std::string line;
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (c > 0) line += "  ";
    const std::string fill(widths[c] - Width(cells[c]), ' ');
    line += columns_[c].align == kRight ? fill + cells[c] : cells[c] + fill;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string Table::ToString() const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    widths.push_back(Width(column.title));
  }
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], Width(row[c]));
    }
  }
  std::vector<std::string> dashes;
  for (const size_t width : widths) dashes.emplace_back(width, '-');

  std::string text = Line(titles, widths) + Line(dashes, widths);
  for (const auto& row : rows_) text += Line(row, widths);
  return text;
}

}  // namespace ballast
