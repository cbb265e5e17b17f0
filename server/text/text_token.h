#ifndef BALLAST_SERVER_TEXT_TEXT_TOKEN_H_
#define BALLAST_SERVER_TEXT_TEXT_TOKEN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"

namespace ballast {

// The label where nothing is learnt.
inline constexpr int32_t kUnsupervised = -100;

// A sample's text, ready for a block.
struct TextSample {
  std::vector<int32_t> ids;     // [tokens], image placeholders expanded
  std::vector<int32_t> labels;  // [tokens], labels[i] = ids[i+1] if that token
                                // is supervised, -100 elsewhere and at the end;
                                // the end of text for Kind::kEnd
  uint32_t label_tokens = 0;    // labels that are not -100
  // The sample's fields, one after the other (WriteFields): those that have one
  // number, and [fields, tokens] of those that have one for each token.
  std::vector<uint32_t> field_values = {};
  std::vector<uint32_t> field_rows = {};
};

// One entry of a sample's text before its images are expanded. A run of
// placeholders is one entry, so that nothing can cut it and a text is measured
// without writing its placeholders. An image or a video is one run or several,
// and the tokens around them are entries of kind kImageText.
struct TextToken {
  enum class Kind : uint8_t {
    kContext,     // not supervised: label -100
    kSupervised,  // supervised: label is its id
    kEnd,         // supervised: label is the end of text's id
    kImage,       // `id` is the run's number in the sample, from 0
    kImageText,   // not supervised, and never cut
  };
  int32_t id = 0;
  Kind kind : 8 = Kind::kContext;
  bool IsLearnt() const {
    return kind == Kind::kSupervised || kind == Kind::kEnd;
  }
  // The turn that wrote it, from 1, if the writer was asked to note turns; 0:
  // no turn did.
  uint32_t turn : 24 = 0;
};
static_assert(sizeof(TextToken) == 8);

// A text before its runs of placeholders are expanded.
struct TextTokens {
  std::vector<TextToken> tokens;
  // Placeholders of each run, which the entries of kind kImage name: runs of
  // images in order, and from `first_video` on runs of videos that have their
  // own id.
  std::vector<uint32_t> runs;
  size_t first_video = SIZE_MAX;
  // Likewise the runs of audio, after the videos'.
  size_t first_audio = SIZE_MAX;
  // The first weight of a message between 0 and 1, as "turn 3: 0.5"; "" without
  // one.
  std::string weight = "";
};

// The token counts of a text with its images expanded.
struct TextCounts {
  uint64_t text_tokens = 0;   // all but placeholders
  uint64_t image_tokens = 0;  // placeholders
  uint64_t label_tokens = 0;  // labels that are not -100
  uint64_t total() const { return text_tokens + image_tokens; }
};

TextCounts CountTokens(const TextTokens& text);

// Makes the text fit max_tokens. With truncate_text, drops as many entries as
// needed from the end, but no images. Errors: OUT_OF_RANGE (too long under
// another `policy`; with truncate_text, the images alone are too long), with
// the counts and what to change. `places`, if not null, has a number for each
// entry, and keeps the numbers of entries that stay.
absl::Status LimitTokens(uint32_t max_tokens, v1::Batch::OnTooLong policy,
                         TextTokens* text,
                         std::vector<uint32_t>* places = nullptr);

// Writes the ids, with placeholders, and the labels, as TextSample has them.
TextSample ExpandTokens(const TextTokens& text, const v1::TokenIds& token_ids);

// Version of the rules that turn texts into tokens and labels. Must be raised
// whenever the same text and settings yield others, or another number of them:
// indexes of other versions are then measured anew, and servers of different
// versions refuse each other. A template, a tokenizer or a setting that was
// refused before raises nothing.
inline constexpr int kTextVersion = 3;

// Converts text to token ids. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids`. Adds no special tokens, but matches
  // those that the text spells out. Errors: INVALID_ARGUMENT (not UTF-8, with
  // the byte's offset), RESOURCE_EXHAUSTED (the tokenizer's pattern exceeds its
  // backtracking limit on the text), UNAVAILABLE (a process that the tokenizer
  // needs cannot be started). After an error `ids` may have grown.
  absl::Status Encode(absl::string_view text, std::vector<int32_t>* ids) const {
    return EncodeWithEnds(text, ids, /*ends=*/nullptr);
  }

  // Like Encode. Unless `ends` is null, also appends for each id the end, in
  // bytes of `text`, of the text that it covers; ends never decrease. Each id
  // begins where the previous one ends.
  virtual absl::Status EncodeWithEnds(absl::string_view text,
                                      std::vector<int32_t>* ids,
                                      std::vector<size_t>* ends) const = 0;

  // As EncodeWithEnds, for a text that continues after other tokens, such as an
  // image's. Differs only for tokenizers that add something at the start of a
  // text.
  virtual absl::Status EncodeContinued(absl::string_view text,
                                       std::vector<int32_t>* ids,
                                       std::vector<size_t>* ends) const {
    return EncodeWithEnds(text, ids, ends);
  }

  // Appends the text of `ids`, special tokens spelled out. It equals the
  // encoded text except for normalisation, and may end within a character.
  // Errors: INVALID_ARGUMENT (an id that is not a token).
  virtual absl::Status Decode(absl::Span<const int32_t> ids,
                              std::string* text) const = 0;

  // The id of a special or added token; nullopt if there is no such token.
  virtual std::optional<int32_t> SpecialTokenId(
      absl::string_view content) const = 0;

  // Ids of the roles that the tokenizer's file assigns, as SentencePiece's do;
  // nullopt if it assigns none. -1: no such token.
  struct ModelIds {
    int32_t end_of_text = -1;
    int32_t pad = -1;
  };
  virtual std::optional<ModelIds> model_ids() const { return std::nullopt; }

  // Equal for tokenizers that encode alike; part of the fingerprint.
  virtual std::string digest() const = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEXT_TOKEN_H_
