#ifndef BALLAST_SERVER_CORPUS_OPEN_FILE_CACHE_H_
#define BALLAST_SERVER_CORPUS_OPEN_FILE_CACHE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "server/corpus/file.h"
#include "server/corpus/source_files.h"

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
  // (common/machine.h) and takes a quarter of it, so that connections and
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

// The data files of an index, opened when first needed and kept open by a cache
// that sources share. Thread-safe.
class OpenFiles {
 public:
  OpenFiles(std::vector<SourceFile> files,
            std::shared_ptr<OpenFileCache> cache);
  ~OpenFiles();
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  // File `number`, which must be below the number of files. Blocks on the disk
  // if the file is not open. Errors, all transient faults: UNAVAILABLE (it
  // cannot be opened), ABORTED (kMemory, and it is not open).
  absl::StatusOr<std::shared_ptr<const File>> Get(
      uint32_t number, ReadFrom from = ReadFrom::kDisk) const;

  // Closes `file`, which Get returned for `number`: the next Get opens it
  // again.
  void Drop(uint32_t number, const File& file) const;

 private:
  const std::vector<SourceFile> files_;
  const std::shared_ptr<OpenFileCache> cache_;
  const std::unique_ptr<OpenFileCache::Slot[]> slots_;  // one per file
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_OPEN_FILE_CACHE_H_
