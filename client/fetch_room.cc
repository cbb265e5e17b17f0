#include "client/fetch_room.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// A block counted in the room until it is destroyed.
class CountedBlock final : public FetchedBlock {
 public:
  CountedBlock(std::unique_ptr<FetchedBlock> block,
               std::shared_ptr<FetchRoom> room)
      : block_(std::move(block)),
        size_(block_->bytes().size()),
        room_(std::move(room)) {}
  ~CountedBlock() override {
    block_.reset();
    room_->Release(size_);
  }
  uint64_t step() const override { return block_->step(); }
  uint32_t micro_batch() const override { return block_->micro_batch(); }
  absl::Span<const uint8_t> bytes() const override { return block_->bytes(); }
  bool intact() const override { return block_->intact(); }
  bool may_be_overwritten() const override {
    return block_->may_be_overwritten();
  }
  std::shared_ptr<const MemoryRegion> region() const override {
    return block_->region();
  }

 private:
  std::unique_ptr<FetchedBlock> block_;
  const uint64_t size_;
  const std::shared_ptr<FetchRoom> room_;
};

// Fetches within the room.
class RoomFetcher final : public BatchFetcher {
 public:
  RoomFetcher(std::unique_ptr<BatchFetcher> fetcher,
              std::shared_ptr<FetchRoom> room, uint64_t stream)
      : fetcher_(std::move(fetcher)), room_(std::move(room)), stream_(stream) {}

  absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() override {
    waits_ = true;
    const bool entered = room_->Enter(stream_, &cancelled_);
    waits_ = false;
    if (!entered) return absl::CancelledError("the fetch was cancelled");
    absl::StatusOr<std::unique_ptr<FetchedBlock>> block = fetcher_->Fetch();
    room_->Leave(stream_, block.ok() ? (*block)->bytes().size() : 0);
    BALLAST_RETURN_IF_ERROR(block.status());
    return std::make_unique<CountedBlock>(*std::move(block), room_);
  }
  void Cancel() override {
    cancelled_ = true;
    room_->WakeAll();
    fetcher_->Cancel();
  }
  uint64_t bytes_received() const override {
    return fetcher_->bytes_received();
  }
  bool waits_for_client() const override { return waits_; }

 private:
  const std::unique_ptr<BatchFetcher> fetcher_;
  const std::shared_ptr<FetchRoom> room_;
  const uint64_t stream_;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> waits_ = false;
};

}  // namespace

bool FetchRoom::Enter(uint64_t stream, const std::atomic<bool>* cancelled) {
  MutexLock lock(&mutex_);
  while (!*cancelled && !Fits(stream)) changed_.Wait(&mutex_);
  if (*cancelled) return false;
  ++fetching_;
  return true;
}

void FetchRoom::Leave(uint64_t stream, uint64_t bytes) {
  MutexLock lock(&mutex_);
  --fetching_;
  if (bytes > 0 && stream == needed_) needed_ = 0;  // here it is
  held_ += bytes;
  largest_ = std::max(largest_, bytes);
  changed_.NotifyAll();
}

void FetchRoom::Release(uint64_t bytes) {
  MutexLock lock(&mutex_);
  held_ -= bytes;
  changed_.NotifyAll();
}

void FetchRoom::Need(uint64_t stream) {
  MutexLock lock(&mutex_);
  needed_ = stream;
  changed_.NotifyAll();
}

void FetchRoom::WakeAll() {
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

bool FetchRoom::Fits(uint64_t stream) const {
  if (stream == needed_) return true;
  if (largest_ == 0) return false;  // the first block says how large
  return held_ + (fetching_ + 2) * largest_ <= max_bytes_;
}

std::unique_ptr<BatchFetcher> FetchWithin(
    std::shared_ptr<FetchRoom> room, uint64_t stream,
    std::unique_ptr<BatchFetcher> fetcher) {
  return std::make_unique<RoomFetcher>(std::move(fetcher), std::move(room),
                                       stream);
}

}  // namespace ballast
