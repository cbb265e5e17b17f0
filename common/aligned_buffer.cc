#include "common/aligned_buffer.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace ballast {

absl::StatusOr<AlignedBuffer> AlignedBuffer::Create(uint64_t size) {
  AlignedBuffer buffer;
  if (size <= UINT64_MAX - kAlignment) {
    buffer.data_.reset(static_cast<uint8_t*>(
        std::aligned_alloc(kAlignment, AlignUp(size, kAlignment))));
  }
  if (buffer.data_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a buffer of ", size, " bytes"));
  }
  buffer.size_ = size;
  return buffer;
}

ExtentAllocator::ExtentAllocator(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  holes_[begin] = end - begin;
  free_ = end - begin;
}

std::optional<uint64_t> ExtentAllocator::Allocate(uint64_t bytes) {
  const auto hole =
      std::find_if(holes_.begin(), holes_.end(),
                   [bytes](const auto& h) { return h.second >= bytes; });
  if (hole == holes_.end()) return std::nullopt;
  const auto [offset, length] = *hole;
  holes_.erase(hole);
  if (length > bytes) holes_[offset + bytes] = length - bytes;
  extents_[offset] = bytes;
  used_ += bytes;
  free_ -= bytes;
  return offset;
}

void ExtentAllocator::Free(uint64_t offset) {
  const auto extent = extents_.find(offset);
  if (extent == extents_.end()) return;
  uint64_t bytes = extent->second;
  extents_.erase(extent);
  used_ -= bytes;
  free_ += bytes;
  const auto next = holes_.find(offset + bytes);
  if (next != holes_.end()) {
    bytes += next->second;
    holes_.erase(next);
  }
  const auto after = holes_.lower_bound(offset);
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  holes_[offset] = bytes;
}

}  // namespace ballast
