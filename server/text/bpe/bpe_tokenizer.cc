#include "server/text/bpe/bpe_tokenizer.h"

#define XXH_INLINE_ALL
#include <utf8proc.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/text/bpe/added_tokens.h"
#include "server/text/bpe/bpe_model.h"
#include "server/text/bpe/tokenizer_json.h"

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

namespace {

// Working memory that is expensive to create, lent to one thread at a time
// without a lock. A thread usually gets back the object it returned, still in
// its core's cache. Keeps at most kSlots objects. T is default-constructed.
// Thread-safe.
template <typename T>
class ScratchPool {
 public:
  ScratchPool() = default;
  ~ScratchPool() {
    for (Slot& slot : slots_) delete slot.scratch.load();
  }
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  std::unique_ptr<T> Take() {
    std::unique_ptr<T> taken(OwnSlot().exchange(nullptr));
    return taken != nullptr ? std::move(taken) : std::make_unique<T>();
  }

  void Return(std::unique_ptr<T> scratch) {
    // Frees an object that another thread has put in the same slot meanwhile.
    std::unique_ptr<T> other(OwnSlot().exchange(scratch.release()));
  }

 private:
  static constexpr size_t kSlots = 256;
  // One cache line each, to avoid false sharing.
  struct alignas(64) Slot {
    std::atomic<T*> scratch = nullptr;
  };

  std::atomic<T*>& OwnSlot() {
    // Thread ids are addresses, whose low bits are all alike.
    const size_t id = std::hash<std::thread::id>()(std::this_thread::get_id());
    return slots_[(id * 0x9E3779B97F4A7C15u >> 56) % kSlots].scratch;
  }

  std::array<Slot, kSlots> slots_;
};

}  // namespace

absl::Status PreTokenizer::Split(absl::string_view text, RegexScratch* scratch,
                                 Sink sink) const {
  return Apply(0, text, text.size(), scratch, sink);
}

absl::Status PreTokenizer::Apply(size_t number, absl::string_view piece,
                                 size_t end, RegexScratch* scratch,
                                 Sink sink) const {
  if (piece.empty()) return absl::OkStatus();
  if (number == steps_.size()) return sink(piece, end);
  const Step& step = steps_[number];
  std::string prefixed;
  if (step.add_prefix_space && piece[0] != ' ') {
    prefixed = absl::StrCat(" ", piece);
    piece = prefixed;
  }
  if (step.pattern.empty()) {
    return Apply(number + 1, piece, end, scratch, sink);
  }
  // Maps a place in `piece` to the whole text by its distance from the end,
  // which a prefixed space does not change.
  const auto put = [&](size_t from, size_t to) {
    return Apply(number + 1, piece.substr(from, to - from),
                 end - (piece.size() - to), scratch, sink);
  };
  size_t done = 0;
  while (done < piece.size()) {
    BALLAST_ASSIGN_OR_RETURN(const std::optional<Regex::Match> match,
                             step.pattern[0].Find(piece, done, scratch));
    const size_t begin = match ? match->begin : piece.size();
    if (begin > done && !step.drop_others) {
      BALLAST_RETURN_IF_ERROR(put(done, begin));
    }
    if (!match) break;
    BALLAST_RETURN_IF_ERROR(put(match->begin, match->end));
    done = match->end;
  }
  return absl::OkStatus();
}

namespace {

// The pattern of ByteLevel with use_regex.
constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Increase whenever the same file yields different ids.
constexpr int kVersion = 1;

// Working memory of one thread for encoding.
struct Scratch {
  RegexScratch regex;
  BpeModel::Scratch words;
  std::string normalized;
  std::vector<NfcChange> changes;
};

class BpeTokenizer final : public Tokenizer {
 public:
  struct Parts {
    bool nfc;
    BpeModel model;
    AddedTokenMatcher before_normalizing;
    AddedTokenMatcher after_normalizing;
    PreTokenizer pre_tokenizer;
    std::vector<AddedToken> added;
    std::string digest;
  };

  explicit BpeTokenizer(Parts parts) : parts_(std::move(parts)) {
    for (const AddedToken& token : parts_.added) {
      added_.emplace(token.id, token.content);
      added_ids_.emplace(token.content, token.id);
    }
  }

  absl::Status EncodeWithEnds(absl::string_view text, std::vector<int32_t>* ids,
                              std::vector<size_t>* ends) const override {
    BALLAST_RETURN_IF_ERROR(CheckUtf8(text));
    std::unique_ptr<Scratch> scratch = pool_.Take();
    const absl::Status status = parts_.before_normalizing.Split(
        text, &scratch->regex,
        [&](int32_t id, size_t begin, size_t end) -> absl::Status {
          if (id < 0) {
            return EncodePiece(text.substr(begin, end - begin), begin,
                               scratch.get(), ids, ends);
          }
          ids->push_back(id);
          if (ends != nullptr) ends->push_back(end);
          return absl::OkStatus();
        });
    pool_.Return(std::move(scratch));
    return status;
  }

  absl::Status Decode(absl::Span<const int32_t> ids,
                      std::string* text) const override {
    for (const int32_t id : ids) {
      const absl::string_view bytes = GetBytes(id);
      if (bytes.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("id ", id, " is not a token of the tokenizer"));
      }
      absl::StrAppend(text, bytes);
    }
    return absl::OkStatus();
  }

  std::optional<int32_t> SpecialTokenId(
      absl::string_view content) const override {
    const auto found = added_ids_.find(content);
    if (found == added_ids_.end()) return std::nullopt;
    return found->second;
  }

  std::string digest() const override { return parts_.digest; }

 private:
  absl::string_view GetBytes(int32_t id) const {
    const auto added = added_.find(id);
    return added != added_.end() ? absl::string_view(added->second)
                                 : parts_.model.bytes(id);
  }

  // Encodes a piece without the tokens that are searched for before
  // normalising. It begins at `offset` of the whole text.
  absl::Status EncodePiece(absl::string_view piece, size_t offset,
                           Scratch* scratch, std::vector<int32_t>* ids,
                           std::vector<size_t>* ends) const {
    absl::string_view text = piece;
    const bool changed = parts_.nfc && NormalizeNfc(piece, &scratch->normalized,
                                                    &scratch->changes);
    if (changed) text = scratch->normalized;
    const auto original = [&](size_t end) {
      return offset + (changed ? OriginalEnd(scratch->changes, end) : end);
    };
    return parts_.after_normalizing.Split(
        text, &scratch->regex,
        [&](int32_t id, size_t begin, size_t end) -> absl::Status {
          if (id >= 0) {
            ids->push_back(id);
            if (ends != nullptr) ends->push_back(original(end));
            return absl::OkStatus();
          }
          return parts_.pre_tokenizer.Split(
              text.substr(begin, end - begin), &scratch->regex,
              [&](absl::string_view word, size_t word_end) {
                const size_t first = ids->size();
                parts_.model.EncodeWord(word, &scratch->words, ids);
                if (ends != nullptr) {
                  AddEnds(*ids, first, begin + word_end, original, ends);
                }
                return absl::OkStatus();
              });
        });
  }

  // Appends the ends of a word's tokens, counted back from the word's end. A
  // prefixed space can make a word longer than its text; it belongs to the
  // first token.
  template <typename Original>
  void AddEnds(const std::vector<int32_t>& ids, size_t first, size_t word_end,
               const Original& original, std::vector<size_t>* ends) const {
    ends->resize(ids.size());
    size_t end = word_end;
    for (size_t i = ids.size(); i-- > first;) {
      (*ends)[i] = original(end);
      end -= std::min(end, parts_.model.bytes(ids[i]).size());
    }
  }

  const Parts parts_;
  absl::flat_hash_map<int32_t, std::string> added_;
  absl::flat_hash_map<std::string, int32_t> added_ids_;
  mutable ScratchPool<Scratch> pool_;
};

absl::StatusOr<PreTokenizer> MakePreTokenizer(const TokenizerSpec& spec) {
  std::vector<PreTokenizer::Step> steps;
  for (const TokenizerSpec::Step& asked : spec.steps) {
    PreTokenizer::Step step;
    step.drop_others = asked.drop_others;
    step.add_prefix_space = asked.add_prefix_space;
    std::string pattern = asked.pattern;
    if (asked.kind == TokenizerSpec::Step::Kind::kByteLevel &&
        asked.use_regex) {
      BALLAST_ASSIGN_OR_RETURN(pattern, ToPcre2Pattern(kGpt2Pattern));
    }
    if (!pattern.empty()) {
      absl::StatusOr<Regex> regex = Regex::Create(pattern);
      if (!regex.ok()) return Annotate(regex.status(), "pre_tokenizer");
      step.pattern.push_back(*std::move(regex));
    }
    steps.push_back(std::move(step));
  }
  return PreTokenizer(std::move(steps));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(
    absl::string_view json) {
  BALLAST_ASSIGN_OR_RETURN(TokenizerSpec spec, ParseTokenizerJson(json));
  BALLAST_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, MakePreTokenizer(spec));
  BALLAST_ASSIGN_OR_RETURN(BpeModel model,
                           BpeModel::Create(std::move(spec.model)));
  std::vector<AddedToken> before;
  std::vector<AddedToken> after;
  for (const AddedToken& token : spec.added_tokens) {
    if (!token.normalized) {
      before.push_back(token);
      continue;
    }
    // These tokens are searched for in normalised text, so in their normalised
    // form.
    AddedToken normalized = token;
    std::vector<NfcChange> changes;
    if (spec.nfc) {
      NormalizeNfc(token.content, &normalized.content, &changes);
    }
    after.push_back(std::move(normalized));
  }
  BALLAST_ASSIGN_OR_RETURN(AddedTokenMatcher before_normalizing,
                           AddedTokenMatcher::Create(std::move(before)));
  BALLAST_ASSIGN_OR_RETURN(AddedTokenMatcher after_normalizing,
                           AddedTokenMatcher::Create(std::move(after)));
  const XXH128_hash_t hash = XXH3_128bits(json.data(), json.size());
  return std::make_unique<BpeTokenizer>(BpeTokenizer::Parts{
      spec.nfc, std::move(model), std::move(before_normalizing),
      std::move(after_normalizing), std::move(pre_tokenizer),
      std::move(spec.added_tokens),
      absl::StrCat("bpe-", kVersion, "-",
                   absl::StrFormat("%016x%016x", hash.high64, hash.low64))});
}

}  // namespace ballast
