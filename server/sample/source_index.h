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
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/image/engine_jpeg.h"
#include "server/sample/image_header.h"
#include "server/sample/medium_kind.h"

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

// The facts of a medium that is no image, that its plan and its cost follow
// from: a row of 72 bytes in the index, little-endian. `start`, `end` and
// `flags` hold for each kind; all else has these meanings for a video. A kind
// that travels as rows has its own form of the row, in its folder of
// server/media (AudioInIndex).
struct StreamFacts {
  static constexpr uint32_t kIsVariable = 1;  // frames are not evenly spaced
  static constexpr uint32_t kHasStart = 2;
  static constexpr uint32_t kHasEnd = 4;
  static constexpr uint32_t kIsList = 8;     // pictures, all of them frames
  static constexpr uint32_t kIsRows = 16;    // SetRowsKind says of which kind
  static constexpr uint32_t kInVideo = 32;   // the audio of a video
  static constexpr uint32_t kHasTimes = 64;  // the index has its FrameTimes

  MediumKind kind() const {
    if ((flags & kIsRows) == 0) return MediumKind::kVideo;
    const uint32_t number =
        static_cast<uint32_t>(MediumKind::kAudio) + (flags >> 8);
    return number < CountMediumKinds() ? static_cast<MediumKind>(number)
                                       : MediumKind::kAudio;
  }
  // `kind` is kAudio or one after it.
  void SetRowsKind(MediumKind kind) {
    const uint32_t number =
        static_cast<uint32_t>(kind) - static_cast<uint32_t>(MediumKind::kAudio);
    flags = (flags & 0xff) | kIsRows | number << 8;
  }
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
  uint32_t flags;       // below bit 8; above: SetImagesBehind, SetRowsKind
  char codec[16];       // libavcodec's name, and zeros; a list's: zeros
};
static_assert(sizeof(StreamFacts) == 72);

// When each frame of a video of variable rate begins after the first, and the
// end of the last, in units of 1/10,000 s, ascending. Empty: frames follow one
// another at StreamFacts::fps.
using FrameTimes = absl::Span<const uint32_t>;

// The number of images after a video in its sample's text, in bits 8 to 31 of
// StreamFacts.flags. 0 but for models that take images and videos in the order
// of the text (InternVL), and in indexes from before: all images are then
// before all videos.
inline constexpr uint32_t kImagesBehindShift = 8;

inline uint32_t ImagesBehind(const StreamFacts& video) {
  return video.flags >> kImagesBehindShift;
}

inline void SetImagesBehind(uint32_t images, StreamFacts* video) {
  constexpr uint32_t kOthers = (1u << kImagesBehindShift) - 1;
  video->flags = (video->flags & kOthers) | images << kImagesBehindShift;
}

// One medium of a sample, as its index has it.
struct IndexedMedium {
  MediumKind kind = MediumKind::kImage;
  size_t number = 0;                    // among the sample's media of its kind
  ImageSize size;                       // of an image
  ImageMark mark;                       // likewise
  const StreamFacts* stream = nullptr;  // of a video or clip; else null
  FrameTimes times;                     // of a video that has some

  // For messages: "video 2".
  std::string name() const {
    return absl::StrCat(MediumName(kind), " ", number);
  }
};

// A sample's media as one list, in the order in which schedules and blocks have
// them: of each kind in the order of the text, and kind by kind; but where the
// model takes images and videos as they come in the text, so are these two. An
// index keeps the facts of each kind in a table of their own, since most media
// are images, of 12 bytes; a list is a view of the tables' parts.
//
//   for (const IndexedMedium& medium : sample.media) …
class MediaList {
 public:
  MediaList() = default;
  // `marks` may be empty. `streams` are kind by kind; `times` those of the
  // streams that have some, one after the other.
  explicit MediaList(absl::Span<const ImageSize> images,
                     absl::Span<const ImageMark> marks = {},
                     absl::Span<const StreamFacts> streams = {},
                     FrameTimes times = {})
      : images_(images), marks_(marks), streams_(streams), times_(times) {
    videos_ = streams.size();
    while (videos_ > 0 && streams[videos_ - 1].kind() != MediumKind::kVideo) {
      --videos_;
    }
  }

  class Iterator {
   public:
    const IndexedMedium& operator*() const { return medium_; }
    const IndexedMedium* operator->() const { return &medium_; }
    Iterator& operator++() {
      ++at_;
      Load();
      return *this;
    }
    friend bool operator!=(const Iterator& a, const Iterator& b) {
      return a.at_ != b.at_;
    }

   private:
    friend class MediaList;
    Iterator(const MediaList* list, size_t at) : list_(list), at_(at) {
      times_ = list->times_;
      if (at == 0) Load();
    }
    void Load();

    const MediaList* list_;
    size_t at_;
    size_t image_ = 0;  // next ones
    size_t stream_ = 0;
    FrameTimes times_;
    IndexedMedium medium_;
  };
  Iterator begin() const { return Iterator(this, 0); }
  Iterator end() const { return Iterator(this, size()); }

  size_t size() const { return images_.size() + streams_.size(); }
  bool empty() const { return size() == 0; }
  size_t count(MediumKind kind) const {
    return kind == MediumKind::kImage   ? images_.size()
           : kind == MediumKind::kVideo ? videos_
           : kind == rows_kind()        ? streams_.size() - videos_
                                        : 0;
  }

  std::vector<IndexedMedium> of(MediumKind kind) const {
    std::vector<IndexedMedium> found;
    for (const IndexedMedium& medium : *this) {
      if (medium.kind == kind) found.push_back(medium);
    }
    return found;
  }

  // The tables' parts.
  absl::Span<const ImageSize> images() const { return images_; }
  absl::Span<const ImageMark> marks() const { return marks_; }
  absl::Span<const StreamFacts> streams() const { return streams_; }
  FrameTimes times() const { return times_; }

 private:
  // The kind of the streams that are no videos: a model takes one such kind.
  MediumKind rows_kind() const {
    return videos_ == streams_.size() ? MediumKind::kAudio
                                      : streams_[videos_].kind();
  }

  absl::Span<const ImageSize> images_;
  absl::Span<const ImageMark> marks_;
  absl::Span<const StreamFacts> streams_;
  FrameTimes times_;
  size_t videos_ = 0;
};

inline void MediaList::Iterator::Load() {
  if (at_ >= list_->size()) return;
  medium_ = {};
  const size_t images_left = list_->images_.size() - image_;
  const bool is_stream =
      images_left == 0 ||
      (stream_ < list_->videos_ &&
       ImagesBehind(list_->streams_[stream_]) >= images_left);
  if (!is_stream) {
    medium_.number = image_;
    medium_.size = list_->images_[image_];
    if (!list_->marks_.empty()) medium_.mark = list_->marks_[image_];
    ++image_;
    return;
  }
  const StreamFacts& stream = list_->streams_[stream_];
  // By its place, so that each kind has as many as count() says.
  const bool is_video = stream_ < list_->videos_;
  medium_.kind = is_video ? MediumKind::kVideo : list_->rows_kind();
  medium_.number = is_video ? stream_ : stream_ - list_->videos_;
  medium_.stream = &stream;
  medium_.times = times_.first(std::min(stream.times(), times_.size()));
  times_.remove_prefix(medium_.times.size());
  ++stream_;
}

// The content hashes of a sample's media, by kind; empty where none is known.
// An image's is valid if the index is hashed or the image is clean.
struct MediaHashes {
  absl::Span<const uint64_t> images;
  absl::Span<const uint64_t> streams;  // as MediaList::streams

  // Null if `medium` of `media` has none.
  const uint64_t* Find(const IndexedMedium& medium,
                       const MediaList& media) const {
    const bool is_image = medium.kind == MediumKind::kImage;
    const auto& hashes = is_image ? images : streams;
    const size_t place =
        is_image ? medium.number : medium.stream - media.streams().data();
    return place < hashes.size() ? &hashes[place] : nullptr;
  }
};

// The facts of a sample that the schedule needs.
struct IndexedSample {
  // Tokens without placeholders; vision start and end are counted, and the
  // times that are written for videos.
  uint32_t text_tokens = 0;
  // Tokens that the loss counts.
  uint32_t label_tokens = 0;
  // Without marks all images travel as pixels, and none has a content hash.
  MediaList media = {};
  EncodedRule rule = EncodedRule::kNone;
  // The tokens in `text_tokens` of a preference pair's first sequence, above 0.
  // Each of its two sequences has the placeholders of all images. 0: no pair.
  uint32_t first_text_tokens = 0;
  // 16 bits of a hash of the text, the same in every index. 0: unknown.
  uint16_t text_check = 0;

  // Length in bytes of an image's file if it may travel encoded, the model
  // permitting; 0 if it travels as pixels.
  uint32_t encoded_bytes(const IndexedMedium& image) const {
    return EncodedBytes(image.mark, rule);
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

  // The content hashes of the sample's media: of images XXH3-64 of their files,
  // of the others HashMedium. Otherwise as sample().
  virtual absl::StatusOr<MediaHashes> media_hashes(uint64_t /*ordinal*/) const {
    return MediaHashes();
  }

  // 32 hexadecimal digits over the lengths of the files that may travel encoded
  // and all content hashes that servers compare. Equal for equal data on every
  // machine. Empty if there are neither.
  virtual std::string encoded_digest() const { return ""; }

  // The media of all samples. O(1). All 0: the source has no marks, and no
  // media that run in time.
  virtual MediaCounts media_counts() const { return {}; }

  // The marks of all samples' images. O(1). All 0: the source has no marks, and
  // its images travel as pixels.
  virtual ImageMarkCounts mark_counts() const { return {}; }
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SAMPLE_SOURCE_INDEX_H_
