#include "server/text/bpe/byte_alphabet.h"

#include <array>
#include <cstddef>

namespace ballast {
namespace {

constexpr size_t kCharacters = 256 + 68;  // 68 bytes are not printable

struct Alphabet {
  std::array<uint16_t, 256> character = {};
  std::array<int16_t, kCharacters> byte = {};  // -1: not in the alphabet
};

constexpr bool IsPrintable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         byte >= 0xAE;
}

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) byte = -1;
  uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const uint16_t character =
        IsPrintable(byte) ? static_cast<uint16_t>(byte) : next++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string ToByteAlphabet(absl::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    const uint16_t character =
        kAlphabet.character[static_cast<unsigned char>(byte)];
    if (character < 0x80) {
      text.push_back(static_cast<char>(character));
    } else {
      text.push_back(static_cast<char>(0xC0 | character >> 6));
      text.push_back(static_cast<char>(0x80 | (character & 0x3F)));
    }
  }
  return text;
}

std::optional<std::string> FromByteAlphabet(absl::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t character = static_cast<unsigned char>(text[i]);
    if (character >= 0x80) {
      // The alphabet ends before U+0800: two UTF-8 bytes at most.
      if (character < 0xC2 || character >= 0xE0 || i + 1 == text.size()) {
        return std::nullopt;
      }
      const uint32_t low = static_cast<unsigned char>(text[++i]);
      if ((low & 0xC0) != 0x80) return std::nullopt;
      character = (character & 0x1F) << 6 | (low & 0x3F);
    }
    if (character >= kCharacters || kAlphabet.byte[character] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kAlphabet.byte[character]));
  }
  return bytes;
}

}  // namespace ballast
