#include "common/aligned_buffer.h"

#include "absl/strings/str_cat.h"
#include "common/align.h"

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

}  // namespace ballast
