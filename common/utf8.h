#ifndef BALLAST_COMMON_UTF8_H_
#define BALLAST_COMMON_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// One character of UTF-8.
struct Utf8Character {
  uint32_t code = 0;
  uint32_t bytes = 1;
};

// The first character of `text`, which must be valid and not empty.
inline Utf8Character FirstCharacter(absl::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t {
    return static_cast<unsigned char>(text[i]);
  };
  if (byte(0) < 0x80) return {byte(0), 1};
  if (byte(0) < 0xE0) return {(byte(0) & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (byte(0) < 0xF0) {
    return {(byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F),
            3};
  }
  return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 |
              (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// The last character of `text`, which must be valid and not empty.
inline Utf8Character LastCharacter(absl::string_view text) {
  size_t begin = text.size() - 1;
  while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return FirstCharacter(text.substr(begin));
}

// Unicode's property White_Space.
inline bool IsWhiteSpace(uint32_t code) {
  return code == ' ' || (code >= '\t' && code <= '\r') || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

// Appends a character to `text`. UTF-8 must be able to hold `code`.
void AppendCharacter(uint32_t code, std::string* text);

// The offset of the first byte of `text` that is not valid UTF-8 (surrogates,
// overlong forms and characters above U+10FFFF are not valid); text.size() if
// all is valid.
size_t FirstInvalidUtf8(absl::string_view text);

// OK, or INVALID_ARGUMENT with the offset and value of the first bad byte.
absl::Status CheckUtf8(absl::string_view text);

// Replaces each maximal part of a broken character in `text` by U+FFFD, as
// Python's decode(errors="replace") and the Unicode standard do.
std::string ReplaceInvalidUtf8(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_COMMON_UTF8_H_
