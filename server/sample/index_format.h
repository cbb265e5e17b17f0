#ifndef BALLAST_SERVER_SAMPLE_INDEX_FORMAT_H_
#define BALLAST_SERVER_SAMPLE_INDEX_FORMAT_H_

#include <array>
#include <bit>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/sample/source_index.h"

namespace ballast {

// The index file, as docs/index_format.md specifies it. Little-endian; mapped
// into memory and read in place:
//
//   head     headers, files, checksums of the table's pages, groups, names;
//            read whole when it is opened
//   records  samples, images, hashes, videos, their times and marks, in pages
//            that are checked when they are first touched
//   table    the checksums of those pages
static_assert(std::endian::native == std::endian::little);

inline constexpr uint64_t kIndexMagic = 0x58444954534C4C42;  // "BLLSTIDX"
// Raised when the layout, or the rules by which files become samples, change.
// An index of another version is rebuilt.
inline constexpr uint32_t kIndexVersion = 8;
// A build takes the lengths of texts from indexes of this version on. Version 7
// has no IndexTimesHeader, and other facts of some streams: of those a
// build takes nothing. Version 6 has no IndexHashesHeader either, nor times of
// media or hashes of videos, and took objects of JSON that have a key twice.
inline constexpr uint32_t kOldestReusedVersion = 6;
// Raised when images are judged or checked for JPEG engines by other rules:
// marks of other rules are made anew.
inline constexpr uint32_t kMarkRules = 1;

struct IndexHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t format;  // v1::Source::Format
  uint64_t total_bytes;
  uint64_t num_files;
  uint64_t num_samples;
  // Samples with known sizes that are bad or skipped because of their text.
  // Their records follow the samples' records.
  uint64_t num_left_out;
  uint64_t num_images;  // of samples and those left out
  // Offsets of the sections. They, and the ones in IndexMarksHeader, follow one
  // another without a gap, except that zeros fill the pages before
  // `sample_table` and `page_checksums`.
  uint64_t file_table;
  uint64_t table_checksums;  // XXH3-64 of each page of page_checksums
  // The first sample of each group (u64) is between the table's checksums and
  // the names; only Parquet sources have any.
  uint64_t names;
  uint64_t sample_table;
  uint64_t image_table;
  uint64_t page_checksums;  // XXH3-64 of each page of records
  // XXH3-128, high half first, of the parts of an IndexKey; sizes_digest also
  // covers the format and the media root.
  uint64_t sizes_digest[2];
  uint64_t lengths_digest[2];
  uint64_t limits_digest[2];
  // XXH3-128, high half first, of the samples (DigestOfSamples).
  uint64_t data_digest[2];
  // XXH3-64 of the bytes between this header and the samples, and of this
  // header up to this field.
  uint64_t head_checksum;
  uint64_t header_checksum;
};
static_assert(sizeof(IndexHeader) == 184);

// Follows the IndexHeader.
struct IndexMarksHeader {
  uint64_t rules;  // kMarkRules
  // Offsets of the content hashes, which follow the images, and of the marks.
  uint64_t hash_table;
  uint64_t mark_table;
  uint64_t num_hashes;  // num_images, or 0 if no image has one
  // Images of samples (not of those left out): ImageMarkCounts.
  uint64_t checks[4];
  uint64_t refusals[16];
  // XXH3-128, high half first, of what travels encoded by
  // EncodedRule::kChecked and kUnchecked (DigestOfEncoded).
  uint64_t checked_digest[2];
  uint64_t unchecked_digest[2];
};
static_assert(sizeof(IndexMarksHeader) == 224);

// Follows the IndexMarksHeader.
struct IndexVideosHeader {
  uint64_t num_videos;  // of samples and those left out
  // Offsets of the numbers of each record's first video (u64), one more than
  // records, which follow the content hashes; and of the videos, which their
  // content hashes follow. Without a video both tables are empty.
  uint64_t start_table;
  uint64_t video_table;
  uint32_t num_sample_videos;  // of samples alone
  uint32_t num_sample_clips;   // of these, of audio
};
static_assert(sizeof(IndexVideosHeader) == 32);
// Follows the IndexVideosHeader.
struct IndexHashesHeader {
  // 1: every image and video has a content hash (`index --hash`); 0: clean
  // images alone.
  uint64_t is_hashed;
  uint64_t num_video_hashes;  // num_videos, or 0
  // Offset of the content hashes of videos.
  uint64_t video_hash_table;
  // Offset of the times of media, which follow the files: of each file, the
  // latest modification of the images and videos that its records name (i64, in
  // nanoseconds since 1970); 0: they name none of a mounted file system.
  uint64_t media_times;
  // XXH3-128, high half first, of the content hashes of all samples
  // (DigestOfHashes); 0 unless is_hashed.
  uint64_t hashes_digest[2];
};
static_assert(sizeof(IndexHashesHeader) == 48);
// Follows the IndexHashesHeader.
struct IndexTimesHeader {
  uint64_t num_times;  // of videos of variable rate, of all records
  // Offsets of the numbers of each record's first time (u64), one more than
  // records, which follow the content hashes of videos; and of the times (u32),
  // which the marks follow. Without a time both tables are empty.
  uint64_t start_table;
  uint64_t time_table;
};
static_assert(sizeof(IndexTimesHeader) == 24);
// Of a file of `version`.
constexpr uint64_t IndexHeaderBytes(uint32_t version) {
  return sizeof(IndexHeader) + sizeof(IndexMarksHeader) +
         sizeof(IndexVideosHeader) +
         (version > 6 ? sizeof(IndexHashesHeader) : 0) +
         (version > 7 ? sizeof(IndexTimesHeader) : 0);
}
inline constexpr uint64_t kIndexHeaderBytes = IndexHeaderBytes(kIndexVersion);

struct IndexFileRecord {
  uint64_t name;  // from the start of the names
  uint64_t name_bytes;
  uint64_t size;
  int64_t mtime_ns;
  // Samples that are bad under any tokenizer: they have no record.
  uint64_t unreadable;
};
static_assert(sizeof(IndexFileRecord) == 40);

// Samples are ordered by file, then by offset, then by line.
struct IndexSampleRecord {
  // webdataset: the headers and bytes of its members; jsonl: its line, without
  // the line break; parquet: the first byte of its row group, and a length of
  // 0.
  uint64_t offset;
  // Hashes of the content that Read must find: TextHash of key and text
  // (webdataset) or XXH3-64 of the line (jsonl) or of the text that a row gives
  // (parquet), and ImagesHash.
  uint64_t text_check;
  uint64_t image_check;
  uint64_t first_image : 40;
  // The tokens in `text_tokens` of a preference pair's chosen sequence, above
  // 0. 0: the sample is no pair.
  uint64_t first_text_tokens : 24;
  uint32_t length;
  // The number of the line or array element (jsonl) or row (parquet), from 1.
  // webdataset: 0.
  uint32_t line;
  uint32_t file;
  uint32_t num_images : 31;
  // The lengths hold only under the index's limits; under others the text is
  // measured again (TextLengths::limited).
  uint32_t limited : 1;
  // Both 0 if the sample is left out.
  uint32_t text_tokens;
  uint32_t label_tokens;
};
static_assert(sizeof(IndexSampleRecord) == 56);

// An image is an ImageSize, a content hash (u64: XXH3-64 of its file) and an
// ImageMark, each in a separate table. A video is a StreamFacts and a content
// hash: of its file, or of the hashes of its pictures' files (VideoHash).

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
// bits each), and the videos; then their times (32 bits each).
Digest DigestOfSamples(absl::Span<const IndexSampleRecord> samples,
                       absl::Span<const ImageSize> images,
                       absl::Span<const uint64_t> group_starts,
                       absl::Span<const uint64_t> video_starts = {},
                       absl::Span<const StreamFacts> videos = {},
                       FrameTimes times = {});

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

#endif  // BALLAST_SERVER_SAMPLE_INDEX_FORMAT_H_
