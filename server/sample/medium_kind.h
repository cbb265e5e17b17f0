#ifndef BALLAST_SERVER_SAMPLE_MEDIUM_KIND_H_
#define BALLAST_SERVER_SAMPLE_MEDIUM_KIND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ballast {

// A kind of media. A sample of any text has media of each kind in the order of
// the text.
enum class MediumKind : uint8_t { kImage, kVideo, kAudio };
inline constexpr size_t kMediumKinds = 3;

// What messages and texts call the media of a kind.
struct MediumWords {
  absl::string_view name;  // "image"
  absl::string_view many;  // "images"
  // Stands in a text for one of them.
  absl::string_view mark;
};
inline constexpr std::array<MediumWords, kMediumKinds> kMediumWords = {
    {{"image", "images", "<image>"},
     {"video", "videos", "<video>"},
     {"audio", "clips of audio", "<audio>"}}};

constexpr const MediumWords& WordsOf(MediumKind kind) {
  return kMediumWords[static_cast<size_t>(kind)];
}

// "image", "video" or "audio".
constexpr absl::string_view MediumName(MediumKind kind) {
  return WordsOf(kind).name;
}

// A value for each kind of media.
template <typename Value>
struct PerMedium {
  std::array<Value, kMediumKinds> values = {};

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

// Calls `use` with each kind, in the order of MediumKind.
template <typename Use>
void ForEachKind(const Use& use) {
  for (size_t i = 0; i < kMediumKinds; ++i) use(static_cast<MediumKind>(i));
}

// For messages: "2 images, 1 video" of what is there, or "" of nothing.
inline std::string Describe(const MediaCounts& counts) {
  std::string text;
  ForEachKind([&](MediumKind kind) {
    if (counts[kind] == 0) return;
    absl::StrAppend(&text, text.empty() ? "" : ", ", counts[kind], " ",
                    WordsOf(kind).many);
  });
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
