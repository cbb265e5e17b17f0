#include "common/table.h"

#include <cstdint>
#include <iostream>
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
  for (std::string& cell : cells) cell = OneLine(cell);
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

namespace {

// A character of UTF-8 at the begin of `text`, which must not be empty: its
// bytes and code. A byte that no character begins with is read alone.
struct Character {
  uint32_t code;
  size_t bytes;
};

Character ReadCharacter(absl::string_view text) {
  const auto byte = [text](size_t i) -> uint32_t {
    return static_cast<unsigned char>(text[i]);
  };
  const uint32_t lead = byte(0);
  const size_t bytes = lead < 0xC2   ? 1
                       : lead < 0xE0 ? 2
                       : lead < 0xF0 ? 3
                       : lead < 0xF5 ? 4
                                     : 1;
  if (bytes == 1 || text.size() < bytes) return {lead, 1};
  uint32_t code = lead & (0xFF >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {lead, 1};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {code, bytes};
}

// Separators of lines and paragraphs, and marks of direction.
bool IsMark(uint32_t code) {
  return code == 0x61C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string OneLine(absl::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const auto [code, bytes] = ReadCharacter(text);
    if (code == '\n') {
      line += "\\n";
    } else if (code == '\r') {
      line += "\\r";
    } else if (code == '\t') {
      line += "\\t";
    } else if (code < 0x20 || (code >= 0x7F && code < 0xA0)) {
      absl::StrAppend(&line, "\\x", absl::Hex(code, absl::kZeroPad2));
    } else if (IsMark(code)) {
      absl::StrAppend(&line, "\\u", absl::Hex(code, absl::kZeroPad4));
    } else {
      absl::StrAppend(&line, text.substr(0, bytes));
    }
    text.remove_prefix(bytes);
  }
  return line;
}

void PrintText(absl::string_view text) { std::cout << OneLine(text) << "\n"; }

}  // namespace ballast
