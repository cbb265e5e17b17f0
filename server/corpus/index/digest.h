#ifndef BALLAST_SERVER_CORPUS_INDEX_DIGEST_H_
#define BALLAST_SERVER_CORPUS_INDEX_DIGEST_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/corpus/index/index_format.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// XXH3-128, high half first.
using Digest = std::array<uint64_t, 2>;

Digest ComputeDigest(absl::string_view bytes);

// XXH3-64.
uint64_t Checksum(absl::string_view bytes);

// XXH3-64 of a webdataset sample's key, a zero byte and its text.
uint64_t TextHash(absl::string_view key, absl::string_view text);

// XXH3-64 of bytes that come in pieces. Thread-compatible.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void Add(absl::string_view bytes);
  uint64_t value() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// A hash of a sample's images: of the length and the first kHeadBytes of each,
// in order. 0 without images. Thread-compatible.
class ImagesHash {
 public:
  // Covers the header of nearly every image. Building an index reads no more
  // than this of most images.
  static constexpr uint64_t kHeadBytes = 4096;

  // Adds an image of `length` bytes; `head` holds the first kHeadBytes of them,
  // or all.
  void Add(uint64_t length, absl::string_view head);
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

// Implements SourceIndex::digest(). Covers text_tokens, label_tokens and the
// number of images (32 bits each), text_check and image_check (64 bits each),
// then each image's width and height (32 bits each), little-endian, of all
// samples in order; then the first samples of the groups (64 bits each); then,
// where there are videos, the number of each sample's first one and of all (64
// bits each), and the videos.
Digest DigestOfSamples(absl::Span<const IndexSampleRecord> samples,
                       absl::Span<const ImageSize> images,
                       absl::Span<const uint64_t> group_starts,
                       absl::Span<const uint64_t> video_starts = {},
                       absl::Span<const IndexedVideo> videos = {});

// Implements SourceIndex::encoded_digest(). Covers EncodedBytes (32 bits) of
// each image of all samples in order and, if that is not 0, the content hash
// (64 bits; 0 if unchecked), little-endian. `hashes` may be empty.
Digest DigestOfEncoded(absl::Span<const IndexSampleRecord> samples,
                       absl::Span<const ImageMark> marks,
                       absl::Span<const uint64_t> hashes, EncodedRule rule);

// The content hash of a list of pictures: XXH3-64 of the XXH3-64 of each
// picture's file (u64, little-endian), in order.
uint64_t PicturesHash(absl::Span<const uint64_t> hashes);

// Covers the number of images and of videos (32 bits each), then the content
// hashes of each image and each video (64 bits each), little-endian, of all
// samples in order. `video_starts` as in DigestOfSamples.
Digest DigestOfHashes(absl::Span<const IndexSampleRecord> samples,
                      absl::Span<const uint64_t> hashes,
                      absl::Span<const uint64_t> video_starts,
                      absl::Span<const uint64_t> video_hashes);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_DIGEST_H_
