#ifndef BALLAST_SERVER_CORPUS_PARQUET_ROW_GROUP_CACHE_H_
#define BALLAST_SERVER_CORPUS_PARQUET_ROW_GROUP_CACHE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "server/corpus/parquet/parquet_file.h"

namespace ballast {

// Decoded row groups and footers of Parquet files, shared by all sources of a
// process. Holds `capacity` bytes, or one part if that alone takes more, and
// forgets the least recently used part first. Parts that a reader holds, or
// that are being read (one for each reading thread), come on top. Thread-safe.
class RowGroupCache {
 public:
  // `offset` is ParquetGroup::offset, or 0 for the file's footer.
  struct Key {
    const void* source = nullptr;
    uint32_t file = 0;
    uint64_t offset = 0;
    // FileStamp::mtime_ns of the file that it is decoded from.
    int64_t version = 0;

    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.source, k.file, k.offset, k.version);
    }
  };
  using Part = std::shared_ptr<const ParquetPart>;
  using Load = std::function<absl::StatusOr<Part>()>;

  explicit RowGroupCache(uint64_t capacity) : capacity_(capacity) {}

  // The cache of the process, at first of 2 GiB.
  static std::shared_ptr<RowGroupCache> OfProcess();
  void SetCapacity(uint64_t capacity);

  // The part, or null if it is not here. Does not block.
  Part Find(const Key& key);
  // The part. If it is not here, one caller runs `load` and the others wait for
  // it; each that waited for a failed load loads anew. Errors: as `load`.
  absl::StatusOr<Part> Get(const Key& key, const Load& load);
  // Forgets the part, so that the next Get loads it.
  void Drop(const Key& key);
  // Forgets all parts of `source`.
  void DropSource(const void* source);

  uint64_t capacity() const;
  // Bytes held, and the loads so far.
  uint64_t bytes() const;
  uint64_t loads() const;

 private:
  struct Entry {
    Part part;  // null while it is being loaded
    std::list<Key>::iterator used;
  };

  Part FindLocked(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the parts that it forgets: freeing them takes time.
  std::vector<Part> Evict() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar loaded_;
  uint64_t capacity_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t loads_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<Key, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::list<Key> used_ ABSL_GUARDED_BY(mutex_);  // loaded ones, latest first
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_PARQUET_ROW_GROUP_CACHE_H_
