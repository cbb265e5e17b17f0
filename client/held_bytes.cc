#include "client/held_bytes.h"

#include <algorithm>
#include <utility>

namespace ballast {

class HeldBytes::CountedBlock final : public FetchedBlock {
 public:
  CountedBlock(std::unique_ptr<FetchedBlock> block, uint64_t fetcher,
               std::shared_ptr<HeldBytes> count)
      : block_(std::move(block)), fetcher_(fetcher), count_(std::move(count)) {}
  ~CountedBlock() override {
    const uint64_t bytes = block_->bytes().size();
    // First the fetcher gets its allowance back, then whoever waits here wakes.
    block_.reset();
    count_->Release(bytes, fetcher_);
  }

  uint64_t step() const override { return block_->step(); }
  uint32_t micro_batch() const override { return block_->micro_batch(); }
  absl::Span<const uint8_t> bytes() const override { return block_->bytes(); }
  bool intact() const override { return block_->intact(); }
  std::shared_ptr<const MemoryRegion> region() const override {
    return block_->region();
  }

 private:
  std::unique_ptr<FetchedBlock> block_;
  const uint64_t fetcher_;
  const std::shared_ptr<HeldBytes> count_;
};

bool HeldBytes::AwaitRoom() {
  MutexLock lock(&mutex_);
  while (!cancelled_ && held_ != held_of_fetcher_ && held_ >= max_bytes_) {
    changed_.Wait(&mutex_);
  }
  return !cancelled_;
}

void HeldBytes::NextFetcher() {
  MutexLock lock(&mutex_);
  ++fetcher_;
  held_of_fetcher_ = 0;
}

bool HeldBytes::MaySend() {
  MutexLock lock(&mutex_);
  return held_of_fetcher_ == 0 ||
         (held_of_fetcher_ <= max_bytes_ &&
          largest_block_ <= max_bytes_ - held_of_fetcher_);
}

void HeldBytes::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

std::unique_ptr<FetchedBlock> HeldBytes::Count(
    std::unique_ptr<FetchedBlock> block) {
  MutexLock lock(&mutex_);
  const uint64_t bytes = block->bytes().size();
  held_ += bytes;
  held_of_fetcher_ += bytes;
  largest_block_ = std::max(largest_block_, bytes);
  return std::make_unique<CountedBlock>(std::move(block), fetcher_,
                                        shared_from_this());
}

void HeldBytes::Release(uint64_t bytes, uint64_t fetcher) {
  MutexLock lock(&mutex_);
  held_ -= bytes;
  if (fetcher == fetcher_) held_of_fetcher_ -= bytes;
  changed_.NotifyAll();
}

}  // namespace ballast
