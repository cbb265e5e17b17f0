#ifndef BALLAST_SERVER_TEXT_BPE_BPE_MODEL_H_
#define BALLAST_SERVER_TEXT_BPE_BPE_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Byte-level vocabularies write each byte as one printable character: printable
// ones of Latin-1 are written as they are, the others are numbered from U+0100
// on in order of byte, so that a space is "Ġ" and a line feed "Ċ".

// Converts `bytes` to that alphabet, as UTF-8.
std::string ToByteAlphabet(absl::string_view bytes);

// Converts `text` back to bytes; nullopt if a character is outside the
// alphabet.
std::optional<std::string> FromByteAlphabet(absl::string_view text);

// A vocabulary and its merges, over bytes. Thread-safe.
class BpeModel {
 public:
  struct Spec {
    // Tokens in the byte alphabet, with their unique ids.
    std::vector<std::pair<std::string, int32_t>> vocab;
    // Pairs that merge into the token of their concatenated names, best first.
    std::vector<std::pair<std::string, std::string>> merges;
    // If set, a word that is itself a token becomes that token regardless of
    // merges.
    bool ignore_merges = false;
  };

  // Ids are below this.
  static constexpr int32_t kMaxId = 1 << 24;

  // Errors: INVALID_ARGUMENT (an id outside 0..kMaxId-1 or given twice, a name
  // given twice, a merge whose parts or result are not in the vocabulary).
  static absl::StatusOr<BpeModel> Create(Spec spec);

  // Per-thread state of encoding: a cache of recent words. Thread-compatible;
  // belongs to one model. About 1 MiB.
  class Scratch;

  // Appends the tokens of one word. Bytes that the vocabulary lacks produce
  // none. Takes O(n·log n) time.
  void EncodeWord(absl::string_view word, Scratch* scratch,
                  std::vector<int32_t>* ids) const;

  // The id of a name; -1 if it is not in the vocabulary.
  int32_t Find(absl::string_view name) const;
  // The bytes of a token; empty if there is no such id.
  absl::string_view bytes(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < bytes_.size()
               ? absl::string_view(bytes_[id])
               : absl::string_view();
  }
  // The number of tokens in the vocabulary.
  size_t size() const { return ids_.size(); }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  static uint64_t Pair(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 |
           static_cast<uint32_t>(right);
  }
  const Merge* FindMerge(int32_t left, int32_t right) const;
  void MergeShort(absl::string_view word, std::vector<int32_t>* ids) const;
  void MergeLong(absl::string_view word, std::vector<int32_t>* ids) const;

  std::array<int32_t, 256> byte_ids_;  // -1: none
  absl::flat_hash_map<uint64_t, Merge> merges_;
  absl::flat_hash_map<std::string, int32_t> ids_;
  std::vector<std::string> bytes_;  // by id
  bool ignore_merges_ = false;
};

class BpeModel::Scratch {
 public:
  Scratch() : words_(kEntries) {}

 private:
  friend class BpeModel;
  static constexpr size_t kEntries = 1 << 14;
  // A cached word and its tokens, one cache line long.
  struct alignas(64) CachedWord {
    static constexpr size_t kMaxWord = 30;
    static constexpr size_t kMaxIds = 8;
    uint8_t word_bytes = 0;  // 0: empty
    uint8_t num_ids = 0;
    char word[kMaxWord];
    int32_t ids[kMaxIds];
  };
  static_assert(sizeof(CachedWord) == 64);

  std::vector<CachedWord> words_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_BPE_MODEL_H_
