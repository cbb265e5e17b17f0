#ifndef BALLAST_SERVER_TEXT_BPE_NFC_H_
#define BALLAST_SERVER_TEXT_BPE_NFC_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ballast {

// A range that normalising changed: [normalized_begin, normalized_end) of the
// result came from [original_begin, original_end).
struct NfcChange {
  size_t normalized_begin;
  size_t normalized_end;
  size_t original_begin;
  size_t original_end;
};

// Converts to Unicode's normalization form C. Returns false, and leaves
// `result` unchanged, if `text` already has that form; this costs one look at
// each character. Otherwise `result` is the normalised text and `changes` the
// ranges that differ, in order; everything else is copied. `text` must be valid
// UTF-8. Takes O(n·log n) time for any number of marks per character.
bool NormalizeNfc(absl::string_view text, std::string* result,
                  std::vector<NfcChange>* changes);

// Maps an end `offset` in the result to the end of the same text in the
// original. An offset inside a changed range maps to that range's end.
size_t OriginalEnd(const std::vector<NfcChange>& changes, size_t offset);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_NFC_H_
