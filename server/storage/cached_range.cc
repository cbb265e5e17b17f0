#include "server/storage/cached_range.h"

#include "common/status_macros.h"

namespace ballast {

std::shared_ptr<const CachedRange> CachedRange::Find(const Place& place,
                                                     ReadFrom from,
                                                     FetchAgain fetch_again) {
  std::shared_ptr<CachedRange> range(
      new CachedRange(place, from, std::move(fetch_again)));
  range->entry_ =
      place.cache->Find(place.key, place.owner, place.range.size, from);
  return range->entry_ != nullptr ? range : nullptr;
}

absl::Status CachedRange::ReadAt(uint64_t offset, uint64_t size,
                                 char* out) const {
  if (again_ == nullptr) {
    const absl::Status read =
        entry_->ReadAt(offset - place_.range.offset, size, out);
    if (!absl::IsDataLoss(read)) return read;
    if (from_ == ReadFrom::kMemory) return absl::AbortedError(read.message());
    // Who reads from the disk removes it.
    place_.cache->RemoveDamaged(place_.key, place_.owner, place_.range.size);
    BALLAST_ASSIGN_OR_RETURN(again_, fetch_again_());
  }
  return again_->ReadAt(offset, size, out);
}

void CachedRange::ReadSoon(ByteRange part) const {
  entry_->ReadSoon(part.offset - place_.range.offset, part.size);
}

}  // namespace ballast
