#include "server/storage/cached_range.h"

#include <algorithm>

#include "common/status_macros.h"

namespace ballast {
namespace {

// Of the first bytes of a range.
SpanKey HeadKey(const SpanKey& key) { return {~key.high, key.low}; }

}  // namespace

std::shared_ptr<const CachedRange> CachedRange::Find(const Place& place,
                                                     ReadFrom from,
                                                     FetchAgain fetch_again) {
  std::shared_ptr<CachedRange> range(
      new CachedRange(place, from, std::move(fetch_again)));
  range->head_ = place.memory->Find(HeadKey(place.key));
  return range->head_ != nullptr || range->IsOpen() ? range : nullptr;
}

bool CachedRange::IsOpen() const {
  if (entry_ == nullptr) {
    entry_ =
        place_.cache->Find(place_.key, place_.owner, place_.range.size, from_);
  }
  return entry_ != nullptr;
}

absl::Status CachedRange::ReadEntry(uint64_t offset, uint64_t size,
                                    char* out) const {
  if (head_ == nullptr && offset + size <= kHead) {
    if (!IsOpen()) return absl::NotFoundError("no entry");
    auto head = std::make_shared<Span>(
        ByteRange{place_.range.offset, std::min(kHead, place_.range.size)});
    BALLAST_RETURN_IF_ERROR(
        entry_->ReadAt(0, head->range().size, head->data()));
    place_.memory->Put(HeadKey(place_.key), head);
    head_ = std::move(head);
  }
  if (head_ != nullptr && offset + size <= head_->range().size) {
    return head_->ReadAt(place_.range.offset + offset, size, out);
  }
  if (!IsOpen()) return absl::NotFoundError("no entry");
  return entry_->ReadAt(offset, size, out);
}

absl::Status CachedRange::ReadAt(uint64_t offset, uint64_t size,
                                 char* out) const {
  if (again_ == nullptr) {
    const absl::Status read =
        ReadEntry(offset - place_.range.offset, size, out);
    const bool is_damaged = absl::IsDataLoss(read);
    if (!is_damaged && !absl::IsNotFound(read)) return read;
    if (from_ == ReadFrom::kMemory) return absl::AbortedError(read.message());
    // Who reads from the disk removes it.
    if (is_damaged) {
      place_.cache->RemoveDamaged(place_.key, place_.owner, place_.range.size);
    }
    BALLAST_ASSIGN_OR_RETURN(again_, fetch_again_());
  }
  return again_->ReadAt(offset, size, out);
}

void CachedRange::ReadSoon(ByteRange part) const {
  if (IsOpen()) {
    entry_->ReadSoon(part.offset - place_.range.offset, part.size);
  }
}

}  // namespace ballast
