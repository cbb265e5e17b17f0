#include "server/text/bpe/bpe_model.h"

#include <algorithm>
#include <cstring>
#include <limits>

#define XXH_INLINE_ALL
#include <xxhash.h>
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

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

namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

// Words up to this length are merged by scanning all pairs for the best one.
constexpr size_t kShortWord = 32;

}  // namespace

absl::StatusOr<BpeModel> BpeModel::Create(Spec spec) {
  BpeModel model;
  model.ignore_merges_ = spec.ignore_merges;
  model.byte_ids_.fill(-1);
  model.ids_.reserve(spec.vocab.size());
  std::vector<bool> is_given;
  for (const auto& [name, id] : spec.vocab) {
    if (id < 0 || id >= kMaxId) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab: \"", name, "\" has id ", id,
                       "; wanted 0 to ", kMaxId - 1));
    }
    if (!model.ids_.emplace(name, id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab: \"", name, "\" is listed twice"));
    }
    if (model.bytes_.size() <= static_cast<size_t>(id)) {
      model.bytes_.resize(id + 1);
      is_given.resize(id + 1);
    }
    if (is_given[id]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model.vocab: id ", id, " is given twice, once to \"", name, "\""));
    }
    is_given[id] = true;
    // A name outside the byte alphabet, such as an added token's, is kept as
    // is.
    model.bytes_[id] = FromByteAlphabet(name).value_or(name);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    model.byte_ids_[byte] =
        model.Find(ToByteAlphabet(absl::string_view(&c, 1)));
  }
  model.merges_.reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    const std::string joined = absl::StrCat(left, right);
    for (const std::string& name : {left, right, joined}) {
      if (model.Find(name) < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "model.merges[", rank, "]: \"", name, "\" is not in model.vocab"));
      }
    }
    // The last of several equal pairs counts.
    model.merges_[Pair(model.Find(left), model.Find(right))] = {
        static_cast<uint32_t>(rank), model.Find(joined)};
  }
  return model;
}

int32_t BpeModel::Find(absl::string_view name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? -1 : found->second;
}

const BpeModel::Merge* BpeModel::FindMerge(int32_t left, int32_t right) const {
  const auto found = merges_.find(Pair(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::EncodeWord(absl::string_view word, Scratch* scratch,
                          std::vector<int32_t>* ids) const {
  using CachedWord = Scratch::CachedWord;
  CachedWord* cached = nullptr;
  if (word.size() <= CachedWord::kMaxWord) {
    const uint64_t hash = XXH3_64bits(word.data(), word.size());
    cached = &scratch->words_[hash % Scratch::kEntries];
    if (cached->word_bytes == word.size() &&
        std::memcmp(cached->word, word.data(), word.size()) == 0) {
      ids->insert(ids->end(), cached->ids, cached->ids + cached->num_ids);
      return;
    }
  }
  const size_t first = ids->size();
  const int32_t whole = ignore_merges_ ? Find(ToByteAlphabet(word)) : -1;
  if (whole >= 0) {
    ids->push_back(whole);
  } else if (word.size() <= kShortWord) {
    MergeShort(word, ids);
  } else {
    MergeLong(word, ids);
  }
  const size_t count = ids->size() - first;
  if (cached == nullptr || count > CachedWord::kMaxIds || word.empty()) return;
  cached->word_bytes = static_cast<uint8_t>(word.size());
  cached->num_ids = static_cast<uint8_t>(count);
  std::memcpy(cached->word, word.data(), word.size());
  std::copy(ids->begin() + first, ids->end(), cached->ids);
}

void BpeModel::MergeShort(absl::string_view word,
                          std::vector<int32_t>* ids) const {
  int32_t symbols[kShortWord];
  Merge merges[kShortWord];  // merge of each symbol with the next
  size_t count = 0;
  for (const char byte : word) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id >= 0) symbols[count++] = id;
  }
  const auto look_up = [&](size_t i) {
    const Merge* merge =
        i + 1 < count ? FindMerge(symbols[i], symbols[i + 1]) : nullptr;
    merges[i] = merge == nullptr ? Merge{kNoRank, 0} : *merge;
  };
  for (size_t i = 0; i < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    symbols[best] = merges[best].id;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    std::copy(merges + best + 2, merges + count, merges + best + 1);
    --count;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids->insert(ids->end(), symbols, symbols + count);
}

void BpeModel::MergeLong(absl::string_view word,
                         std::vector<int32_t>* ids) const {
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    uint32_t previous;
    uint32_t next;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t at;
    int32_t id;
    // Puts the best candidate on top of the heap, the leftmost of equal ones.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (const char byte : word) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id < 0) continue;
    const auto at = static_cast<uint32_t>(symbols.size());
    symbols.push_back({id, at == 0 ? kNone : at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = kNone;
  std::vector<Candidate> heap;
  const auto candidate = [&](uint32_t at) {
    const uint32_t next = symbols[at].next;
    if (next == kNone) return;
    const Merge* merge = FindMerge(symbols[at].id, symbols[next].id);
    if (merge != nullptr) heap.push_back({merge->rank, at, merge->id});
  };
  for (uint32_t at = 0; at < symbols.size(); ++at) candidate(at);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& symbol = symbols[best.at];
    // Skips the pair if its symbols have been merged meanwhile.
    if (symbol.id < 0 || symbol.next == kNone) continue;
    const Merge* merge = FindMerge(symbol.id, symbols[symbol.next].id);
    if (merge == nullptr || merge->rank != best.rank) continue;
    Symbol& gone = symbols[symbol.next];
    symbol.id = best.id;
    symbol.next = gone.next;
    gone.id = -1;
    if (symbol.next != kNone) symbols[symbol.next].previous = best.at;
    for (const uint32_t at : {best.at, symbol.previous}) {
      if (at == kNone) continue;
      const size_t before = heap.size();
      candidate(at);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end());
    }
  }
  for (uint32_t at = 0; at != kNone; at = symbols[at].next) {
    ids->push_back(symbols[at].id);
  }
}

}  // namespace ballast
