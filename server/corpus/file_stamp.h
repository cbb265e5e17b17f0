#ifndef BALLAST_SERVER_CORPUS_FILE_STAMP_H_
#define BALLAST_SERVER_CORPUS_FILE_STAMP_H_

#include <cstdint>

namespace ballast {

// Identifies one version of a file's bytes, on every machine and after every
// move of a dataset that keeps the files' times.
struct FileStamp {
  uint64_t size = 0;
  // Time of the last modification. Of an object in a store: a hash of its ETag,
  // or its time if the store has none.
  int64_t mtime_ns = 0;

  friend bool operator==(const FileStamp& a, const FileStamp& b) {
    return a.size == b.size && a.mtime_ns == b.mtime_ns;
  }
};

// A file as one machine sees it at one moment. `ctime_ns` changes with every
// write, truncation and change of the times, and no program can set it back:
// two equal states have the same bytes between them. It also changes with
// links, owners and permissions, and on every copy, so it identifies no
// version: only states a moment apart are compared. 0 of an object in a store.
struct FileState {
  FileStamp stamp;
  int64_t ctime_ns = 0;

  friend bool operator==(const FileState&, const FileState&) = default;
};

// The places that a file's bytes may come from.
enum class ReadFrom {
  // Anywhere; blocks until they have been read.
  kDisk,
  // The system's memory (page cache) only. Never waits for a disk or a network,
  // even if they hang; a read that would have to wait is ABORTED.
  kMemory,
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_FILE_STAMP_H_
