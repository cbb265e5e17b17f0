#ifndef BALLAST_SERVER_CORPUS_INDEX_IMAGE_MARK_H_
#define BALLAST_SERVER_CORPUS_INDEX_IMAGE_MARK_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/image/engine_jpeg.h"

namespace ballast {

// Which images travel encoded: as their files, which the JPEG engines of the
// ranks' GPUs decode. All others travel as pixels.
enum class EncodedRule : uint8_t {
  kNone,       // decode: host
  kChecked,    // those that `index --check` has found clean
  kUnchecked,  // also those that it has not read (device_unchecked)
};

// The result of checking the whole file of an image that engines may take.
enum class ImageCheckResult : uint8_t {
  kUnchecked,
  kClean,    // engines make libjpeg's planes of it (server/image/sound_scan.h)
  kUnsound,  // they may make other ones
  kChanged,  // its bytes are not those indexed, or its sample has a data fault
};

// An image's fitness for JPEG engines, in 32 bits: why its header rules it out,
// or its file's length and the result of its check. The index maps an array of
// them. A mark of 0 is that of an image that nobody has judged, which travels
// as pixels.
struct ImageMark {
  // Length of the longest file that travels encoded. A picture of
  // kMostEnginePixels is shorter in any ordinary quality.
  static constexpr uint32_t kMostBytes = (uint32_t{1} << 26) - 1;

  uint32_t bits = 0;

  // Not for engines.
  static constexpr ImageMark Refused(EngineRefusal refusal) {
    return {static_cast<uint32_t>(refusal) << 26};
  }
  // For engines, as far as its header tells. `bytes`, the file's length, is 1
  // to kMostBytes.
  static constexpr ImageMark Marked(
      uint32_t bytes, ImageCheckResult check = ImageCheckResult::kUnchecked) {
    return {bytes | static_cast<uint32_t>(check) << 30};
  }

  constexpr bool is_marked() const { return bytes() != 0; }
  // 0 unless marked.
  constexpr uint32_t bytes() const { return bits & kMostBytes; }
  // kNone if marked, or not judged.
  constexpr EngineRefusal refusal() const {
    return static_cast<EngineRefusal>(bits >> 26 & 15);
  }
  constexpr ImageCheckResult check() const {
    return static_cast<ImageCheckResult>(bits >> 30);
  }

  friend constexpr bool operator==(ImageMark, ImageMark) = default;
};
static_assert(sizeof(ImageMark) == 4);

// Length in bytes of the file of an image that travels encoded; 0 if the image
// travels as pixels.
constexpr uint32_t EncodedBytes(ImageMark mark, EncodedRule rule) {
  switch (mark.check()) {
    case ImageCheckResult::kClean:
      return rule == EncodedRule::kNone ? 0 : mark.bytes();
    case ImageCheckResult::kUnchecked:
      return rule == EncodedRule::kUnchecked ? mark.bytes() : 0;
    default:
      return 0;
  }
}

// Numbers of an index's images by their marks.
struct ImageMarkCounts {
  uint64_t images = 0;
  // The marked ones, by ImageCheckResult.
  std::array<uint64_t, 4> checks = {};
  // The others, by EngineRefusal. [0]: not judged.
  std::array<uint64_t, 16> refusals = {};

  void Add(ImageMark mark) {
    ++images;
    if (mark.is_marked()) {
      ++checks[static_cast<size_t>(mark.check())];
    } else {
      ++refusals[static_cast<size_t>(mark.refusal())];
    }
  }
  uint64_t with(ImageCheckResult check) const {
    return checks[static_cast<size_t>(check)];
  }
  uint64_t marked() const {
    return checks[0] + checks[1] + checks[2] + checks[3];
  }
  // Returns whether the index holds the check of every marked image.
  bool checked() const { return with(ImageCheckResult::kUnchecked) == 0; }

  friend bool operator==(const ImageMarkCounts&,
                         const ImageMarkCounts&) = default;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_IMAGE_MARK_H_
