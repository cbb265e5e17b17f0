#ifndef BALLAST_SERVER_CORPUS_READ_FROM_H_
#define BALLAST_SERVER_CORPUS_READ_FROM_H_

namespace ballast {

// The places that a file's bytes may come from.
enum class ReadFrom {
  // Anywhere; blocks until they have been read.
  kDisk,
  // The system's memory (page cache) only. Never waits for a disk or a network,
  // even if they hang; a read that would have to wait is ABORTED.
  kMemory,
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_READ_FROM_H_
