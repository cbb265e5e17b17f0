#ifndef BALLAST_SERVER_CORPUS_INDEX_INDEX_WRITER_H_
#define BALLAST_SERVER_CORPUS_INDEX_INDEX_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/corpus/file.h"
#include "server/corpus/index/index_format.h"
#include "server/corpus/index/index_key.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// All that an index file holds. Both kinds of samples name their images by
// `first_image` and lie in the order that IndexSampleRecord asks for.
struct IndexContents {
  struct DataFile {
    std::string name;
    FileStamp stamp;
    uint64_t unreadable = 0;
  };
  uint32_t format = 0;
  IndexDigests digests;
  std::vector<DataFile> files;
  std::vector<IndexSampleRecord> samples;
  // Those left out; the images of all samples come before theirs.
  std::vector<IndexSampleRecord> left_out;
  std::vector<ImageSize> images;
};

// Writes `path` atomically: whoever opens it sees the old file or the whole new
// one, and a failure leaves the old one. Errors: those of the disk.
absl::Status WriteIndex(const std::string& path, const IndexContents& contents);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_INDEX_WRITER_H_
