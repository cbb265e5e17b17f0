#ifndef BALLAST_SERVER_CORPUS_INDEX_SOURCE_INDEX_H_
#define BALLAST_SERVER_CORPUS_INDEX_SOURCE_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/corpus/index/image_mark.h"
#include "server/corpus/index/indexed_video.h"

namespace ballast {

// An image's size, from its header.
struct ImageSize {
  uint32_t width;
  uint32_t height;
};
static_assert(sizeof(ImageSize) == 8);

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

  // XXH3-64 of the files of the sample's images, one for each; that of image i
  // is valid if is_hashed() or the image is clean (its mark's check() is
  // kClean). Empty: none is. Otherwise as sample().
  virtual absl::StatusOr<absl::Span<const uint64_t>> content_hashes(
      uint64_t /*ordinal*/) const {
    return absl::Span<const uint64_t>();
  }

  // The content hashes of the sample's videos (VideoHash), one for each if
  // is_hashed(), else empty. Otherwise as sample().
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

  // The marks of all samples' images. O(1). All 0: the source has no marks, and
  // its images travel as pixels.
  virtual ImageMarkCounts mark_counts() const { return {}; }
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_SOURCE_INDEX_H_
