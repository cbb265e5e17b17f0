#ifndef BALLAST_SERVER_FILES_STORE_READER_H_
#define BALLAST_SERVER_FILES_STORE_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "server/files/disk_cache.h"
#include "server/files/entry_file.h"
#include "server/files/object_store.h"

namespace ballast {

// Decides which ranges of an object to request. Pure functions.

// Bytes of one request: large enough that the time to the first byte hardly
// counts, small enough that a row group is read by several requests at once.
inline constexpr uint64_t kPartBytes = uint64_t{8} << 20;
// Largest gap between two wanted ranges that is read rather than skipped.
inline constexpr uint64_t kGapBytes = uint64_t{256} << 10;
// A wanted range shorter than this is read with its neighbours, in blocks.
inline constexpr uint64_t kSmallBytes = uint64_t{64} << 10;
inline constexpr uint64_t kBlockBytes = uint64_t{256} << 10;
// The least and the largest size of a window, in bytes.
inline constexpr uint64_t kMinWindow = uint64_t{64} << 10;
inline constexpr uint64_t kMaxWindow = kPartBytes;

// Ranges in ascending order that cover `wanted` (in any order, not empty), with
// gaps of at most kGapBytes read too.
std::vector<ByteRange> Coalesce(std::vector<ByteRange> wanted);

// `range` in parts of at most kPartBytes, the last of which may be shorter.
std::vector<ByteRange> SplitIntoParts(ByteRange range);

// The range to keep for a sample at `range`: itself, or the aligned blocks
// around it if it is small, so that lines of text share requests.
ByteRange RangeToKeep(ByteRange range, uint64_t object_size);

// The next window, for a read of `wanted` that the window `last` does not
// cover: twice as long as `last` if it continues where `last` ended, else the
// least size; never shorter than `wanted`, never past the object's end.
ByteRange NextWindow(ByteRange last, ByteRange wanted, uint64_t object_size);

// Requests to a store: counted, at most `connections` at the same time, large
// ranges in parts that are read in parallel. Thread-safe.
class StoreReader {
 public:
  // `store` and `counters` are not owned.
  StoreReader(ObjectStore* store, uint32_t connections,
              StorageCounters* counters)
      : store_(store), connections_(connections), counters_(counters) {}

  // As ObjectStore.
  absl::StatusOr<std::vector<StoreEntry>> List(const std::string& folder,
                                               bool recursive);
  absl::StatusOr<FileStamp> Stat(const std::string& path);
  absl::Status Read(const std::string& path, uint64_t object_size,
                    ByteRange range, char* out);

 private:
  // Waits for a connection, runs `request` and counts it.
  template <typename Request>
  auto Run(Request request);

  ObjectStore* const store_;
  const uint32_t connections_;
  StorageCounters* const counters_;
  Mutex mutex_;
  CondVar freed_;
  uint32_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A range whose bytes are read from its entry in the cache. Once the entry
// turns out to be damaged, it is removed and the range read from the store.
// Bytes read before that are of the same version, and their checksums matched.
// Thread-compatible.
class CachedRange final : public StoredRange {
 public:
  // The range's place in the cache, which outlives the range.
  struct Place {
    ByteRange range;
    SpanKey key;
    uint64_t owner = 0;
    const DiskCache* cache = nullptr;
  };
  // Reads the range from the store.
  using FetchAgain = std::function<absl::StatusOr<SpanMemory::Ptr>()>;

  // The range, or null if its entry is not in the cache. `from` as
  // DiskCache::Find.
  static std::shared_ptr<const CachedRange> Find(const Place& place,
                                                 ReadFrom from,
                                                 FetchAgain fetch_again);

  const ByteRange& range() const override { return place_.range; }
  absl::Status ReadAt(uint64_t offset, uint64_t size, char* out) const override;
  bool IsInCache() const override { return again_ == nullptr; }
  void ReadSoon(ByteRange part) const override;

 private:
  CachedRange(const Place& place, ReadFrom from, FetchAgain fetch_again)
      : place_(place), from_(from), fetch_again_(std::move(fetch_again)) {}

  const Place place_;
  const ReadFrom from_;
  const FetchAgain fetch_again_;
  // The reader's state, whether the bytes come from the cache or the store.
  mutable std::unique_ptr<EntryReader> entry_;
  mutable SpanMemory::Ptr again_;  // null while the entry is undamaged
};

// State shared by opened objects. Nothing is owned but the cache.
struct ObjectParts {
  StoreReader* reader = nullptr;
  SpanMemory* memory = nullptr;
  std::shared_ptr<DiskCache> cache;  // may be null
  StorageCounters* counters = nullptr;
  // Called if the store now has another version than the opened one.
  std::function<void(const std::string& url)> on_change;
};

// An object at `path` of the reader's store (StoreUrl::path), called `url` in
// messages, in the version of `stamp`.
//
// A range is read first and the version compared afterwards, so that a span
// never mixes versions and never has another one than `stamp`: stores replace
// objects as a whole.
std::shared_ptr<const StoredObject> MakeOpenObject(ObjectParts parts,
                                                   std::string url,
                                                   std::string path,
                                                   const FileStamp& stamp);

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_STORE_READER_H_
