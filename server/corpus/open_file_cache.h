#ifndef BALLAST_SERVER_CORPUS_OPEN_FILE_CACHE_H_
#define BALLAST_SERVER_CORPUS_OPEN_FILE_CACHE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "server/corpus/file.h"

namespace ballast {

// Bounds the data files that all sources of a process keep open together.
// Closes the least recently used file first. Files that a reader holds stay
// open until it is done. Thread-safe.
class OpenFileCache {
 public:
  // One file's slot in the cache. Readers of different files share no lock.
  class Slot {
   public:
    // The open file, or null.
    std::shared_ptr<const File> Get(const OpenFileCache& cache);

   private:
    friend class OpenFileCache;
    Mutex mutex_;
    std::shared_ptr<const File> file_ ABSL_GUARDED_BY(mutex_);
    std::atomic<uint64_t> last_used_{0};
  };

  // Keeps at most `capacity` files (at least 1) open.
  explicit OpenFileCache(size_t capacity) : capacity_(capacity) {}

  // The cache of the process. The first call raises the limit of descriptors
  // (descriptor_limit.h) and takes a quarter of it, so that connections and
  // media files find descriptors too; 8 to 4096 files.
  static std::shared_ptr<OpenFileCache> OfProcess();

  // Puts `file` into the slot in place of the present one.
  void Put(Slot* slot, std::shared_ptr<const File> file);
  // Empties the slot if it holds `file`, or in any case if `file` is null.
  void Remove(Slot* slot, const File* file);
  // Closes half of the files. For a process that has run out of descriptors.
  void CloseHalf();

  size_t capacity() const { return capacity_; }

 private:
  void CloseOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t capacity_;
  mutable std::atomic<uint64_t> uses_{0};
  Mutex mutex_;  // taken before a slot's
  std::vector<Slot*> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_OPEN_FILE_CACHE_H_
