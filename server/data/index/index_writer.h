#ifndef BALLAST_SERVER_DATA_INDEX_INDEX_WRITER_H_
#define BALLAST_SERVER_DATA_INDEX_INDEX_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/data/index/index_options.h"
#include "server/files/file.h"
#include "server/sample/index_format.h"
#include "server/sample/source_index.h"

namespace ballast {

// The contents of an index file. Both kinds of samples refer to their images by
// `first_image` and are in the order of IndexSampleRecord.
struct IndexContents {
  struct DataFile {
    std::string name;
    FileStamp stamp;
    uint64_t unreadable = 0;
    int64_t media_time_ns = 0;  // IndexFile::media_time_ns
  };
  uint32_t format = 0;
  IndexDigests digests;
  std::vector<DataFile> files;
  std::vector<IndexSampleRecord> samples;
  // Samples left out; their images follow the images of all samples.
  std::vector<IndexSampleRecord> left_out;
  std::vector<ImageSize> images;
  // SourceIndex::group_starts().
  std::vector<uint64_t> group_starts;
  // One for each image, or empty: none has been judged.
  std::vector<ImageMark> marks;
  // One for each image, or empty: no image is clean. Unless is_hashed, hashes
  // of images that are not clean are ignored.
  std::vector<uint64_t> content_hashes;
  // Every image and every video has its hash.
  bool is_hashed = false;
  // In the order of their records, and the number of each one's record: those
  // left out are numbered after the samples.
  std::vector<StreamFacts> streams;
  std::vector<uint64_t> stream_records;
  std::vector<uint64_t> stream_hashes;  // as content_hashes
  // FrameTimes of the videos that have some, one after the other.
  std::vector<uint32_t> times;
};

// Writes `path` atomically: readers see the old file or the whole new one, and
// a failure leaves the old one. Errors: as WriteFileAtomically.
absl::Status WriteIndex(const std::string& path, const IndexContents& contents);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_INDEX_INDEX_WRITER_H_
