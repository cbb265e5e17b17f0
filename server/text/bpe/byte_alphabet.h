#ifndef BALLAST_SERVER_TEXT_BPE_BYTE_ALPHABET_H_
#define BALLAST_SERVER_TEXT_BPE_BYTE_ALPHABET_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ballast {

// Byte-level vocabularies write each byte as one printable character: those of
// Latin-1 that are printable stand for themselves, the others are numbered from
// U+0100 on in order of byte, so that a space is "Ġ" and a line feed "Ċ".

// Converts `bytes` to that alphabet, as UTF-8.
std::string ToByteAlphabet(absl::string_view bytes);

// Converts `text` back to bytes; nullopt if a character is outside the
// alphabet.
std::optional<std::string> FromByteAlphabet(absl::string_view text);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_BYTE_ALPHABET_H_
