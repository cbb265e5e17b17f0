#ifndef BALLAST_SERVER_TEXT_BPE_NFC_H_
#define BALLAST_SERVER_TEXT_BPE_NFC_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ballast {

// A stretch that normalising changed: [normalized_begin, normalized_end) of the
// result came from [original_begin, original_end).
struct NfcChange {
  size_t normalized_begin;
  size_t normalized_end;
  size_t original_begin;
  size_t original_end;
};

// Unicode's normalization form C. Returns false, and leaves `result` as it is,
// where `text` has that form already, which costs one look at each character.
// Otherwise `result` is the normalised text and `changes` the stretches that
// differ, in order; all else is copied. `text` must be valid UTF-8. Takes time
// proportional to n·log n, however many marks a character has.
bool NormalizeNfc(absl::string_view text, std::string* result,
                  std::vector<NfcChange>* changes);

// Where in the original the text ends that ends at `offset` of the result; an
// offset inside a changed stretch counts as its end.
size_t OriginalEnd(const std::vector<NfcChange>& changes, size_t offset);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_NFC_H_
