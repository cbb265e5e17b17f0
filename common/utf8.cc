#include "common/utf8.h"

#include <simdjson.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ballast {
namespace {

// The number of leading bytes of `text` that belong to its first character, and
// whether that character is complete. At least 1; `text` must not be empty.
struct Prefix {
  size_t bytes;
  bool whole;
};

Prefix FirstPrefix(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  // Bounds of the second byte: they exclude overlong forms, surrogates and
  // values above U+10FFFF.
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

bool IsValid(absl::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

}  // namespace

void AppendCharacter(uint32_t code, std::string* text) {
  const auto put = [text](uint32_t byte) {
    text->push_back(static_cast<char>(byte));
  };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

size_t FirstInvalidUtf8(absl::string_view text) {
  if (IsValid(text)) return text.size();
  size_t i = 0;
  while (i < text.size()) {
    const Prefix prefix = FirstPrefix(text.substr(i));
    if (!prefix.whole) return i;
    i += prefix.bytes;
  }
  return i;
}

absl::Status CheckUtf8(absl::string_view text) {
  const size_t at = FirstInvalidUtf8(text);
  if (at == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "not UTF-8 at byte ", at, ": found ",
      absl::StrFormat("0x%02X", static_cast<unsigned char>(text[at]))));
}

std::string ReplaceInvalidUtf8(absl::string_view text) {
  if (IsValid(text)) return std::string(text);
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    const Prefix prefix = FirstPrefix(text);
    if (prefix.whole) {
      absl::StrAppend(&result, text.substr(0, prefix.bytes));
    } else {
      absl::StrAppend(&result, "\xEF\xBF\xBD");
    }
    text.remove_prefix(prefix.bytes);
  }
  return result;
}

}  // namespace ballast
