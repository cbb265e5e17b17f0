#ifndef BALLAST_SERVER_CORPUS_FILE_STAMP_H_
#define BALLAST_SERVER_CORPUS_FILE_STAMP_H_

#include <cstdint>

namespace ballast {

// Identifies one state of a file.
struct FileStamp {
  uint64_t size = 0;
  // Time of the last modification. Of an object in a store: a hash of its ETag,
  // or its time if the store has none.
  int64_t mtime_ns = 0;

  friend bool operator==(const FileStamp& a, const FileStamp& b) {
    return a.size == b.size && a.mtime_ns == b.mtime_ns;
  }
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_FILE_STAMP_H_
