#include "server/text/bpe/nfc.h"

#include <algorithm>
#include <bitset>
#include <cstdint>

#include <utf8proc.h>

#include "common/utf8.h"

namespace ballast {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Hugging Face's normalizers know Unicode 9. They treat these later marks, and
// halves of later compositions, as characters without properties.
constexpr Range kUnknown[] = {
#include "server/text/bpe/newer_marks.inc"
};

constexpr auto kOptions =
    static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);

// Characters from here on neither compose nor decompose.
constexpr uint32_t kNoneAbove = 0x30000;

// Appends the canonical decomposition of one character.
void Decompose(uint32_t code, std::vector<utf8proc_int32_t>* codes) {
  // The longest canonical decomposition has 4 characters.
  utf8proc_int32_t parts[8];
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, 8,
                              kOptions, /*last_boundclass=*/nullptr);
  if (count <= 0 || count > 8) {
    codes->push_back(static_cast<utf8proc_int32_t>(code));
  } else {
    codes->insert(codes->end(), parts, parts + count);
  }
}

int CombiningClass(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// Normalises a whole sequence in place.
void Compose(std::vector<utf8proc_int32_t>* codes) {
  // Marks are sorted here because utf8proc sorts them in quadratic time.
  for (auto begin = codes->begin(); begin != codes->end();) {
    if (CombiningClass(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, codes->end(), [](int32_t code) {
      return CombiningClass(code) == 0;
    });
    std::stable_sort(begin, end, [](int32_t a, int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    begin = end;
  }
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      codes->data(), static_cast<utf8proc_ssize_t>(codes->size()), kOptions);
  if (count >= 0) codes->resize(count);
}

// True if a character is unchanged in every context.
bool FindStable(uint32_t code) {
  constexpr uint16_t kNone = UINT16_MAX;
  // The second halves of compositions have the upper half of the indices.
  constexpr uint16_t kSecond = 0x8000;
  const utf8proc_property_t& property =
      *utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
  if (property.combining_class != 0) return false;
  if (property.comb_index != kNone && property.comb_index >= kSecond) {
    return false;
  }
  // Hangul vowels and final consonants compose by rule, not by table.
  if (code >= 0x1160 && code < 0x1200) return false;
  std::vector<utf8proc_int32_t> codes;
  Decompose(code, &codes);
  if (codes.size() == 1 && codes[0] == static_cast<int32_t>(code)) return true;
  if (CombiningClass(codes[0]) != 0) return false;
  Compose(&codes);
  return codes.size() == 1 && codes[0] == static_cast<int32_t>(code);
}

struct Characters {
  std::bitset<kNoneAbove> stable;
  std::bitset<kNoneAbove> unknown;  // a subset of the stable ones
};

const Characters& MakeCharacters() {
  auto* characters = new Characters;
  for (uint32_t code = 0; code < kNoneAbove; ++code) {
    if (code < 0x300 || FindStable(code)) characters->stable.set(code);
  }
  for (const Range& range : kUnknown) {
    for (uint32_t code = range.first; code <= range.last; ++code) {
      characters->stable.set(code);
      characters->unknown.set(code);
    }
  }
  return *characters;
}

}  // namespace

bool NormalizeNfc(absl::string_view text, std::string* result,
                  std::vector<NfcChange>* changes) {
  static const Characters& characters = MakeCharacters();
  const auto is_stable = [](uint32_t code) {
    return code >= kNoneAbove || characters.stable[code];
  };
  bool changed = false;
  size_t copied = 0;       // `result` holds the text up to this byte
  size_t last_stable = 0;  // earliest start of the next composition
  size_t i = 0;
  std::vector<utf8proc_int32_t> codes;
  std::string composed;
  while (i < text.size()) {
    // Characters below U+0300, in one or two bytes, are all stable.
    if (static_cast<unsigned char>(text[i]) < 0xCC) {
      last_stable = i;
      i += static_cast<unsigned char>(text[i]) < 0x80 ? 1 : 2;
      continue;
    }
    Utf8Character character = FirstCharacter(text.substr(i));
    if (is_stable(character.code)) {
      // Unknown characters are excluded from composition.
      const bool alone =
          character.code < kNoneAbove && characters.unknown[character.code];
      last_stable = alone ? i + character.bytes : i;
      i += character.bytes;
      continue;
    }
    // Characters outside the range from the stable character before to the next
    // one cannot take part.
    const size_t begin = std::max(last_stable, copied);
    codes.clear();
    size_t end = begin;
    while (end < text.size()) {
      character = FirstCharacter(text.substr(end));
      if (end > i && is_stable(character.code)) break;
      Decompose(character.code, &codes);
      end += character.bytes;
    }
    Compose(&codes);
    composed.clear();
    for (const utf8proc_int32_t code : codes) {
      AppendCharacter(static_cast<uint32_t>(code), &composed);
    }
    if (text.substr(begin, end - begin) != composed) {
      if (!changed) {
        result->clear();
        changes->clear();
        changed = true;
      }
      result->append(text.data() + copied, begin - copied);
      changes->push_back(
          {result->size(), result->size() + composed.size(), begin, end});
      result->append(composed);
      copied = end;
    }
    i = end;
    last_stable = end;
  }
  if (changed) result->append(text.data() + copied, text.size() - copied);
  return changed;
}

size_t OriginalEnd(const std::vector<NfcChange>& changes, size_t offset) {
  // Finds the last change that begins before `offset`.
  const auto after = std::partition_point(
      changes.begin(), changes.end(), [offset](const NfcChange& change) {
        return change.normalized_begin < offset;
      });
  if (after == changes.begin()) return offset;
  const NfcChange& change = *std::prev(after);
  if (offset <= change.normalized_end) return change.original_end;
  return change.original_end + (offset - change.normalized_end);
}

}  // namespace ballast
