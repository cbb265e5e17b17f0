#include "client/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/aligned_buffer.h"
#include "common/status_macros.h"

namespace ballast {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kMaxBytes = uint64_t{1} << 40;

uint64_t RegionBytes(uint64_t wanted) {
  return AlignUp(std::min(wanted, kMaxBytes), kPage);
}

}  // namespace

class BufferPool::Region final : public MemoryRegion {
 public:
  // Null if the system refuses to map the memory.
  static std::shared_ptr<const Region> Map(uint64_t bytes) {
    // Extra space, so that the region can begin at a huge page.
    const uint64_t mapped = bytes + kHugePage;
    void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    const auto first = reinterpret_cast<uintptr_t>(mapping);
    const uint64_t skipped = AlignUp(uint64_t{first}, kHugePage) - first;
    auto* const base = static_cast<uint8_t*>(mapping) + skipped;
    // One page fault per 2 MiB instead of 512, if the system has huge pages;
    // harmless if not.
    madvise(base, bytes, MADV_HUGEPAGE);
    return std::shared_ptr<const Region>(
        new Region({mapping, mapped}, base, bytes));
  }
  ~Region() override { munmap(mapping_.first, mapping_.second); }

  absl::Span<const uint8_t> bytes() const override { return {base_, bytes_}; }
  bool read_only() const override { return false; }
  uint8_t* base() const { return base_; }

 private:
  using Mapping = std::pair<void*, uint64_t>;
  Region(Mapping mapping, uint8_t* base, uint64_t bytes)
      : mapping_(mapping), base_(base), bytes_(bytes) {}

  const Mapping mapping_;
  uint8_t* const base_;
  const uint64_t bytes_;
};

BufferPool::BufferPool(uint64_t region_bytes)
    : places_(0, RegionBytes(region_bytes)),
      region_bytes_(RegionBytes(region_bytes)) {}

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
  if (GetRegion(buffer) == nullptr) return;
  MutexLock lock(&mutex_);
  places_.Free(buffer.bytes.data() - region_->base());
}

std::shared_ptr<const MemoryRegion> BufferPool::GetRegion(
    const Buffer& buffer) const {
  if (buffer.bytes.data() == nullptr || buffer.own.size() != 0) return nullptr;
  MutexLock lock(&mutex_);
  return region_;
}

BufferPools::BufferPools() : idle_(std::make_shared<Idle>()) {}

std::shared_ptr<BufferPool> BufferPools::Take(uint64_t region_bytes) {
  std::unique_ptr<BufferPool> pool;
  {
    MutexLock lock(&idle_->mutex);
    auto& pools = idle_->pools;
    const auto found =
        std::find_if(pools.begin(), pools.end(), [&](const auto& idle) {
          return idle->region_bytes() == RegionBytes(region_bytes);
        });
    if (found != pools.end()) {
      pool = std::move(*found);
      pools.erase(found);
    }
  }
  if (pool == nullptr) pool = std::make_unique<BufferPool>(region_bytes);
  return {pool.release(), [weak = std::weak_ptr<Idle>(idle_)](BufferPool* p) {
            std::unique_ptr<BufferPool> back(p);
            std::unique_ptr<BufferPool> oldest;  // destroyed outside the lock
            const std::shared_ptr<Idle> idle = weak.lock();
            if (idle == nullptr) return;
            MutexLock lock(&idle->mutex);
            idle->pools.push_back(std::move(back));
            if (idle->pools.size() <= kMaxIdle) return;
            oldest = std::move(idle->pools.front());
            idle->pools.pop_front();
          }};
}

HeldBytes::Share::Share(std::shared_ptr<HeldBytes> account, uint64_t fetcher,
                        uint64_t bytes)
    : account_(std::move(account)), fetcher_(fetcher), bytes_(bytes) {
  MutexLock lock(&account_->mutex_);
  account_->held_ += bytes_;
  if (fetcher_ == account_->fetcher_) account_->held_of_fetcher_ += bytes_;
  account_->largest_block_ = std::max(account_->largest_block_, bytes_);
}

void HeldBytes::Share::Release() {
  const std::shared_ptr<HeldBytes> account = std::move(account_);
  if (account == nullptr) return;
  MutexLock lock(&account->mutex_);
  account->held_ -= bytes_;
  if (fetcher_ == account->fetcher_) account->held_of_fetcher_ -= bytes_;
  account->changed_.NotifyAll();
}

uint64_t HeldBytes::NextFetcher() {
  MutexLock lock(&mutex_);
  held_of_fetcher_ = 0;
  return ++fetcher_;
}

uint64_t HeldBytes::Allowance() {
  MutexLock lock(&mutex_);
  return AllowanceLocked();
}

bool HeldBytes::MaySend() {
  MutexLock lock(&mutex_);
  return largest_block_ <= AllowanceLocked();
}

bool HeldBytes::AwaitRoom() {
  MutexLock lock(&mutex_);
  while (!cancelled_ && held_ != held_of_fetcher_ && held_ >= max_bytes_) {
    changed_.Wait(&mutex_);
  }
  return !cancelled_;
}

void HeldBytes::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

uint64_t HeldBytes::AllowanceLocked() const {
  if (held_of_fetcher_ == 0) return UINT64_MAX;
  return held_of_fetcher_ < max_bytes_ ? max_bytes_ - held_of_fetcher_ : 0;
}

}  // namespace ballast
