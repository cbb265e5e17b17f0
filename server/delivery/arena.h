#ifndef BALLAST_SERVER_DELIVERY_ARENA_H_
#define BALLAST_SERVER_DELIVERY_ARENA_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "proto/block/block_layout.h"

namespace ballast {

// Identifies an arena: a client finds it and proves that it has mapped it.
struct ArenaIdentity {
  std::string path;
  uint64_t bytes = 0;
  std::string id;
  std::string nonce;
};

// Memory for blocks, of a fixed size, laid out as in
// proto/block/block_layout.h. It is either a file that other processes may map,
// or private to this process.
//
// The file is DIRECTORY/ballast-UID-ID.arena, of mode 0640. Its server holds a
// lock on it (flock), which ends with the server, however it dies. The
// destructor removes the file; failing that, the next server of the same user
// that creates an arena in the directory does. Processes that have it mapped
// keep its pages, with their last content, until they unmap it.
//
// Pages are allocated in the file system before they are first written, so that
// a full file system is an error here and never a signal. Thread-safe.
class Arena {
 public:
  // Creates a file in `directory`, after removing the files that dead servers
  // left there. `bytes` is rounded down to whole pages. The file system must be
  // large enough, but its space need not be free yet: clients keep the memory
  // of a dead server's arena until they are done with its last block. Errors:
  // RESOURCE_EXHAUSTED (the file system is too small), PERMISSION_DENIED,
  // NOT_FOUND (no such directory), UNAVAILABLE (the file system has no space at
  // all, or another system call fails); each names the directory.
  static absl::StatusOr<std::unique_ptr<Arena>> CreateShared(
      const std::string& directory, uint64_t bytes);

  // Allocates memory private to this process. Errors: RESOURCE_EXHAUSTED (no
  // free address range of that size).
  static absl::StatusOr<std::unique_ptr<Arena>> CreatePrivate(uint64_t bytes);

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The pages for blocks and their stamps: [begin(), end()).
  static constexpr uint64_t begin() { return kArenaPage; }
  uint64_t end() const { return bytes_; }

  // The byte at `offset`. Must not be accessed before EnsureReserved covers it.
  uint8_t* at(uint64_t offset) const { return base_ + offset; }
  ArenaStamp* stamp(uint64_t block_offset) const {
    return reinterpret_cast<ArenaStamp*>(at(block_offset - kArenaStampBytes));
  }

  // Allocates the pages before `end` in the file system; blocks for about a
  // millisecond per MiB, once for each page. Errors: RESOURCE_EXHAUSTED.
  absl::Status EnsureReserved(uint64_t end);

  // Null for a private arena.
  const ArenaIdentity* identity() const {
    return identity_.path.empty() ? nullptr : &identity_;
  }

 private:
  Arena() = default;
  absl::Status Map(uint64_t bytes);

  uint8_t* base_ = nullptr;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;  // -1 for a private arena
  ArenaIdentity identity_;
  Mutex mutex_;
  uint64_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Removes the arenas that dead servers of this user left in `directory`.
// Returns their number.
int RemoveStaleArenas(const std::string& directory);

// Makes the arena that `setting` (serve.arena: `off`, `auto` or a directory)
// requests. `socket` is the path of the server's Unix socket, or empty. `auto`
// tries the socket's directory if that is in memory, then /dev/shm. If both
// fail, or the given directory fails with UNAVAILABLE, it logs why and creates
// a private arena: a server that serves over the stream is better than none.
// Errors: otherwise as CreateShared for a directory; as CreatePrivate.
absl::StatusOr<std::unique_ptr<Arena>> MakeArena(absl::string_view setting,
                                                 absl::string_view socket,
                                                 uint64_t bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_ARENA_H_
