#ifndef BALLAST_SERVER_SAMPLE_MEDIUM_KIND_H_
#define BALLAST_SERVER_SAMPLE_MEDIUM_KIND_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

// A kind of media. A sample of any text has media of each kind in the order of
// the text. Kinds after kAudio are added (server/media/rows_rule.h).
enum class MediumKind : uint8_t { kImage, kVideo, kAudio };
inline constexpr size_t kMostMediumKinds = 6;

// What messages and texts call the media of a kind.
struct MediumWords {
  absl::string_view name;  // "image"; also the key of one in JSON
  absl::string_view many;  // "images"
  // Stands in a text for one of them.
  absl::string_view mark;
};
inline constexpr MediumWords kMediumWords[] = {
    {"image", "images", "<image>"},
    {"video", "videos", "<video>"},
    {"audio", "clips of audio", "<audio>"}};

// The words of the kinds that were added.
inline std::vector<MediumWords>& AddedMediumWords() {
  static auto* const added = new std::vector<MediumWords>();
  return *added;
}

// Adds a kind, whose words live for ever. Call it before main, or before any
// other thread reads the table.
inline MediumKind AddMediumKind(const MediumWords& words) {
  AddedMediumWords().push_back(words);
  return static_cast<MediumKind>(std::size(kMediumWords) +
                                 AddedMediumWords().size() - 1);
}

inline size_t CountMediumKinds() {
  return std::min(std::size(kMediumWords) + AddedMediumWords().size(),
                  kMostMediumKinds);
}

// All kinds, in the order of MediumKind.
inline absl::Span<const MediumKind> MediumKinds() {
  static constexpr auto kAll = [] {
    std::array<MediumKind, kMostMediumKinds> all = {};
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<MediumKind>(i);
    return all;
  }();
  return absl::MakeConstSpan(kAll).first(CountMediumKinds());
}

constexpr const MediumWords& WordsOf(MediumKind kind) {
  const auto number = static_cast<size_t>(kind);
  return number < std::size(kMediumWords)
             ? kMediumWords[number]
             : AddedMediumWords()[number - std::size(kMediumWords)];
}

// Whether a block has the medium as rows of numbers (server/media/rows_rule.h),
// and not as pixels or files.
constexpr bool TravelsAsRows(MediumKind kind) {
  return kind >= MediumKind::kAudio;
}

// "image", "video", "audio", or the name of a kind that was added.
constexpr absl::string_view MediumName(MediumKind kind) {
  return WordsOf(kind).name;
}

// A value for each kind of media.
template <typename Value>
struct PerMedium {
  std::array<Value, kMostMediumKinds> values = {};

  constexpr Value& operator[](MediumKind kind) {
    return values[static_cast<size_t>(kind)];
  }
  constexpr const Value& operator[](MediumKind kind) const {
    return values[static_cast<size_t>(kind)];
  }
  friend bool operator==(const PerMedium&, const PerMedium&) = default;
};

// How many media of each kind.
using MediaCounts = PerMedium<uint64_t>;

constexpr uint64_t Total(const MediaCounts& counts) {
  uint64_t total = 0;
  for (const uint64_t count : counts.values) total += count;
  return total;
}

// For messages: "2 images, 1 video" of what is there, or "" of nothing.
inline std::string Describe(const MediaCounts& counts) {
  std::string text;
  for (const MediumKind kind : MediumKinds()) {
    if (counts[kind] == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", counts[kind], " ",
                    WordsOf(kind).many);
  }
  return text;
}

// A medium that is a part of a file, or the pictures of a list, which are the
// frames of a video: at least one part.
template <typename Part>
struct MediumParts {
  MediumKind kind = MediumKind::kImage;
  std::vector<Part> parts = {};
  bool is_list = false;
};

// The numbers of media by kind in a list of what has a `kind`.
template <typename List>
MediaCounts CountKinds(const List& media) {
  MediaCounts counts;
  for (const auto& medium : media) ++counts[medium.kind];
  return counts;
}

// The kinds of a sample's media, in the order of its text.
using MediaOrder = std::vector<MediumKind>;

inline MediaCounts CountsOf(const MediaOrder& order) {
  MediaCounts counts;
  for (const MediumKind kind : order) ++counts[kind];
  return counts;
}

// For each medium of `kind`, in order, the media of `other` before it.
inline std::vector<uint32_t> CountsBefore(const MediaOrder& order,
                                          MediumKind kind, MediumKind other) {
  std::vector<uint32_t> before;
  uint32_t others = 0;
  for (const MediumKind one : order) {
    if (one == kind) before.push_back(others);
    if (one == other) ++others;
  }
  return before;
}

}  // namespace ballast

#endif  // BALLAST_SERVER_SAMPLE_MEDIUM_KIND_H_
