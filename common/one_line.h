#ifndef BALLAST_COMMON_ONE_LINE_H_
#define BALLAST_COMMON_ONE_LINE_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ballast {

// `text` as one line for a terminal or a log file: ASCII's control characters
// become \n, \r, \t or \x1b, so that a file's or a peer's name cannot begin a
// new line or control the terminal. All other bytes stay. Pure.
inline std::string OneLine(absl::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\r') {
      line += "\\r";
    } else if (c == '\t') {
      line += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&line, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace ballast

#endif  // BALLAST_COMMON_ONE_LINE_H_
