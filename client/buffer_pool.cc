#include "client/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/align.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMostBytes = uint64_t{1} << 40;

}  // namespace

class BufferPool::Region final : public MemoryRegion {
 public:
  // Null where the system maps no such memory.
  static std::shared_ptr<const Region> Map(uint64_t bytes) {
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    return std::shared_ptr<const Region>(
        new Region(static_cast<uint8_t*>(base), bytes));
  }
  ~Region() override { munmap(base_, bytes_); }

  absl::Span<const uint8_t> bytes() const override { return {base_, bytes_}; }
  bool read_only() const override { return false; }
  uint8_t* base() const { return base_; }

 private:
  Region(uint8_t* base, uint64_t bytes) : base_(base), bytes_(bytes) {}

  uint8_t* const base_;
  const uint64_t bytes_;
};

BufferPool::BufferPool(uint64_t region_bytes)
    : places_(0, AlignUp(std::min(region_bytes, kMostBytes), kPage)),
      region_bytes_(AlignUp(std::min(region_bytes, kMostBytes), kPage)) {}

absl::StatusOr<BufferPool::Buffer> BufferPool::Take(uint64_t bytes) {
  Buffer buffer;
  if (bytes <= region_bytes_) {
    MutexLock lock(&mutex_);
    if (!std::exchange(tried_, true)) region_ = Region::Map(region_bytes_);
    const std::optional<uint64_t> place =
        region_ == nullptr
            ? std::nullopt
            : places_.Allocate(AlignUp(std::max<uint64_t>(bytes, 1), kPage));
    if (place.has_value()) {
      buffer.bytes = {region_->base() + *place, bytes};
      return buffer;
    }
  }
  BALLAST_ASSIGN_OR_RETURN(buffer.own, AlignedBuffer::Create(bytes));
  buffer.bytes = buffer.own.bytes();
  return buffer;
}

void BufferPool::Return(Buffer buffer) {
  if (RegionOf(buffer) == nullptr) return;
  MutexLock lock(&mutex_);
  places_.Free(buffer.bytes.data() - region_->base());
}

std::shared_ptr<const MemoryRegion> BufferPool::RegionOf(
    const Buffer& buffer) const {
  if (buffer.bytes.data() == nullptr || buffer.own.size() != 0) return nullptr;
  MutexLock lock(&mutex_);
  return region_;
}

}  // namespace ballast
