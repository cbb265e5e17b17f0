#ifndef BALLAST_SERVER_CORPUS_READ_FROM_H_
#define BALLAST_SERVER_CORPUS_READ_FROM_H_

namespace ballast {

// Whence the bytes of a file may come.
enum class ReadFrom {
  // Wherever they lie; blocks until they are here.
  kDisk,
  // Only what the system has in memory (the page cache). Never waits for a disk
  // or a network, also where these hang. What would have to is ABORTED.
  kMemory,
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_READ_FROM_H_
