#ifndef BALLAST_SERVER_STORAGE_CACHED_RANGE_H_
#define BALLAST_SERVER_STORAGE_CACHED_RANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/corpus/read_from.h"
#include "server/storage/disk_cache.h"
#include "server/storage/entry_file.h"
#include "server/storage/span.h"
#include "server/storage/span_memory.h"

namespace ballast {

// A range whose bytes are read from its entry in the cache. Once the entry
// turns out to be damaged, it is removed and the range read from the store.
// Bytes read before that are of the same version, and were compared.
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
  using FetchAgain = std::function<absl::StatusOr<SpanMemory::SpanPtr>()>;

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
  // The state of a reader, whichever way the bytes take.
  mutable std::unique_ptr<EntryReader> entry_;
  mutable SpanMemory::SpanPtr again_;  // null while the entry is whole
};

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_CACHED_RANGE_H_
