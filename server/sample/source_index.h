#ifndef BALLAST_SERVER_SAMPLE_SOURCE_INDEX_H_
#define BALLAST_SERVER_SAMPLE_SOURCE_INDEX_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/image/engine_jpeg.h"
#include "server/sample/image_header.h"

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
  kClean,    // engines make libjpeg's planes of it
             // (server/media/image/sound_scan.h)
  kUnsound,  // they may make other ones
  kChanged,  // its bytes are not those indexed, or its sample has a data fault
};

// An image's fitness for JPEG engines, in 32 bits: why its header rules it out,
// or its file's length and the result of its check. The index maps an array of
// them. The mark 0 belongs to an image that nobody has judged, which travels
// as pixels.
struct ImageMark {
  // Length of the longest file that travels encoded. A picture of
  // kMaxEnginePixels is shorter in any ordinary quality.
  static constexpr uint32_t kMaxBytes = (uint32_t{1} << 26) - 1;

  uint32_t bits = 0;

  // Not for engines.
  static constexpr ImageMark Refused(EngineRefusal refusal) {
    return {static_cast<uint32_t>(refusal) << 26};
  }
  // For engines, as far as its header shows. `bytes`, the file's length, is 1
  // to kMaxBytes.
  static constexpr ImageMark Marked(
      uint32_t bytes, ImageCheckResult check = ImageCheckResult::kUnchecked) {
    return {bytes | static_cast<uint32_t>(check) << 30};
  }

  constexpr bool is_marked() const { return bytes() != 0; }
  // 0 unless marked.
  constexpr uint32_t bytes() const { return bits & kMaxBytes; }
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

// The facts of a video that its plan and its cost follow from, as the index
// stores them. Little-endian. A clip of audio is one, too, with kIsAudio
// (server/model/indexed_clip.h): clips follow the sample's videos, in the order
// of the text. With kInVideo it is the audio of a video: then each has one, in
// their order.
struct IndexedVideo {
  static constexpr uint32_t kIsVariable = 1;  // frames are not evenly spaced
  static constexpr uint32_t kHasStart = 2;
  static constexpr uint32_t kHasEnd = 4;
  static constexpr uint32_t kIsList = 8;  // pictures, all of them frames
  static constexpr uint32_t kIsAudio = 16;
  static constexpr uint32_t kInVideo = 32;   // the audio of a video
  static constexpr uint32_t kHasTimes = 64;  // the index has its FrameTimes

  bool is_audio() const { return (flags & kIsAudio) != 0; }
  bool is_in_video() const { return (flags & kInVideo) != 0; }
  // The length of its FrameTimes.
  size_t times() const {
    return (flags & kHasTimes) != 0 ? size_t{frames} + 1 : 0;
  }

  // As the container says, on average, above 0; a list's: 0.
  double fps;
  // Sampled a second, as the sample says; 0: the model's. A list's: taken.
  double sample_fps;
  // The clip, in seconds, where the flags say so; else 0.
  double start;
  double end;
  uint32_t frames;
  uint32_t width;  // in pixels, shown upright
  uint32_t height;
  uint32_t rotation;    // clockwise degrees that show it upright
  uint32_t key_frames;  // frames with which decoding can begin
  uint32_t flags;       // below bit 8; above: MediaOrder
  char codec[16];       // libavcodec's name, and zeros; a list's: zeros
};
static_assert(sizeof(IndexedVideo) == 72);

// When each frame of a video of variable rate begins after the first, and the
// end of the last, in units of 1/10,000 s, ascending. Empty: frames follow one
// another at IndexedVideo::fps.
using FrameTimes = absl::Span<const uint32_t>;

// Takes the times of the next video from the front of those of a sample's
// videos, which are in their order.
inline FrameTimes TakeTimes(const IndexedVideo& video, FrameTimes* rest) {
  const FrameTimes times = rest->first(std::min(video.times(), rest->size()));
  rest->remove_prefix(times.size());
  return times;
}

// How many of a sample's media are videos; clips of audio follow.
inline size_t CountVideos(absl::Span<const IndexedVideo> media) {
  size_t videos = media.size();
  while (videos > 0 && media[videos - 1].is_audio()) --videos;
  return videos;
}

// Whether clips among the sample's media are the audio of its videos.
inline bool HaveAudioInVideo(absl::Span<const IndexedVideo> media) {
  return std::any_of(media.begin(), media.end(),
                     [](const auto& one) { return one.is_in_video(); });
}

// For each clip that is not the audio of a video, the videos whose audio comes
// before it.
inline std::vector<uint32_t> VideosBeforeClips(
    absl::Span<const IndexedVideo> media) {
  std::vector<uint32_t> before;
  uint32_t videos = 0;
  for (const IndexedVideo& one : media) {
    if (one.is_in_video()) {
      ++videos;
    } else if (one.is_audio()) {
      before.push_back(videos);
    }
  }
  return before;
}

// The facts of a sample that the schedule needs.
struct IndexedSample {
  // Tokens without placeholders; vision start and end are counted, and the
  // times that are written for videos.
  uint32_t text_tokens = 0;
  // Tokens that the loss counts.
  uint32_t label_tokens = 0;
  absl::Span<const ImageSize> images;
  // One for each image, or empty: all images travel as pixels, and none has a
  // content hash.
  absl::Span<const ImageMark> marks = {};
  EncodedRule rule = EncodedRule::kNone;
  absl::Span<const IndexedVideo> videos = {};
  absl::Span<const IndexedVideo> clips = {};  // of audio
  FrameTimes times = {};  // of the videos that have some, one after the other
  // The tokens in `text_tokens` of a preference pair's first sequence, above 0.
  // Each of its two sequences has the placeholders of all images. 0: no pair.
  uint32_t first_text_tokens = 0;
  // 16 bits of a hash of the text, the same in every index. 0: unknown.
  uint16_t text_check = 0;

  // Length in bytes of the file of image `i` if it may travel encoded, the
  // model permitting; 0 if it travels as pixels.
  uint32_t encoded_bytes(size_t i) const {
    return marks.empty() ? 0 : EncodedBytes(marks[i], rule);
  }
};

// The index of one source: place, image sizes and text length of each sample.
// Immutable; thread-safe. Samples that were bad when it was built are left out.
class SourceIndex {
 public:
  virtual ~SourceIndex() = default;

  // Number of samples in the source.
  virtual uint64_t size() const = 0;

  // `ordinal` must be below size(). O(1); the spans live as long as the index.
  // Blocks on the disk at the first look-up of a page. Errors: DATA_LOSS (the
  // index is damaged), naming the place.
  virtual absl::StatusOr<IndexedSample> sample(uint64_t ordinal) const = 0;

  // Groups of samples that are read together at the cost of one, such as the
  // row groups of Parquet files: the first ordinal of each, ascending from 0.
  // Empty if samples are read one by one.
  virtual absl::Span<const uint64_t> group_starts() const { return {}; }

  // OK if the index is the one that was opened. Called after sample() of a
  // step's ordinals: what those returned is then of that index. Does not block.
  // Errors: DATA_LOSS (something has written to it), saying what to do.
  virtual absl::Status CheckUnchanged() const { return absl::OkStatus(); }

  // Called before sample() of many ordinals: fetches what they need from disk
  // and memory all at once. Does not change any result.
  virtual void Prefetch(absl::Span<const uint64_t> /*ordinals*/) const {}

  // 32 hexadecimal digits over everything that sample() returns and over the
  // samples' content. Equal for equal data on every machine, wherever the files
  // are.
  virtual std::string digest() const = 0;

  // Whether every image and video has a content hash (`index --hash`).
  virtual bool is_hashed() const { return false; }

  // XXH3-64 of the files of the sample's images, one for each; an image's hash
  // is valid if is_hashed() or the image is clean (its mark's check() is
  // kClean). Empty: no image's is. Otherwise as sample().
  virtual absl::StatusOr<absl::Span<const uint64_t>> content_hashes(
      uint64_t /*ordinal*/) const {
    return absl::Span<const uint64_t>();
  }

  // The content hashes of the sample's videos (VideoHash), then of its clips of
  // audio, one for each if is_hashed(), else empty. Otherwise as sample().
  virtual absl::StatusOr<absl::Span<const uint64_t>> video_hashes(
      uint64_t /*ordinal*/) const {
    return absl::Span<const uint64_t>();
  }

  // 32 hexadecimal digits over the lengths of the files that may travel encoded
  // and all content hashes that servers compare. Equal for equal data on every
  // machine. Empty if there are neither.
  virtual std::string encoded_digest() const { return ""; }

  // Videos of all samples. O(1).
  virtual uint64_t num_videos() const { return 0; }
  // Clips of audio of all samples. O(1).
  virtual uint64_t num_clips() const { return 0; }

  // The marks of all samples' images. O(1). All 0: the source has no marks, and
  // its images travel as pixels.
  virtual ImageMarkCounts mark_counts() const { return {}; }
};

// The number of images after a video in its sample's text, in bits 8 to 31 of
// IndexedVideo.flags. 0 but for models that take images and videos in the order
// of the text (InternVL), and in indexes from before: all images are then
// before all videos.
inline constexpr uint32_t kImagesBehindShift = 8;

inline uint32_t ImagesBehind(const IndexedVideo& video) {
  return video.flags >> kImagesBehindShift;
}

inline void SetImagesBehind(uint32_t images, IndexedVideo* video) {
  constexpr uint32_t kOthers = (1u << kImagesBehindShift) - 1;
  video->flags = (video->flags & kOthers) | images << kImagesBehindShift;
}

// Walks the images and videos of a sample in the order in which schedules and
// blocks have them. Both keep their own order, whatever the flags say.
//
//   for (MediaOrder order(images, videos); order.Next();) {
//     if (order.is_video()) … videos[order.number()] …
class MediaOrder {
 public:
  MediaOrder(uint64_t images, absl::Span<const IndexedVideo> videos)
      : images_(images), videos_(videos) {}

  // Moves to the next, at first to the first. False: there is no next one.
  bool Next() {
    is_video_ = video_ < videos_.size() &&
                uint64_t{ImagesBehind(videos_[video_])} >= images_ - image_;
    if (is_video_) {
      number_ = video_++;
      return true;
    }
    if (image_ == images_) return false;
    number_ = image_++;
    return true;
  }

  bool is_video() const { return is_video_; }
  // The place of the image among images, or of the video among videos.
  uint64_t number() const { return number_; }

 private:
  const uint64_t images_;
  const absl::Span<const IndexedVideo> videos_;
  uint64_t image_ = 0;  // next ones
  uint64_t video_ = 0;
  bool is_video_ = false;
  uint64_t number_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SAMPLE_SOURCE_INDEX_H_
