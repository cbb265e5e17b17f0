#include "server/delivery/work_board.h"

#include "common/instruments.h"

namespace ballast {

WorkBoard::Entry::Entry(WorkBoard* board, const WorkInHand& work)
    : board_(board), shard_(ShardOfThread(kShards)) {
  if (board_ == nullptr) return;
  Shard& shard = board_->shards_[shard_];
  {
    MutexLock lock(&shard.mutex);
    place_ = shard.work.insert(shard.work.end(), work);
  }
  Stage(work.stage);
}

WorkBoard::Entry::~Entry() {
  if (board_ == nullptr) return;
  Shard& shard = board_->shards_[shard_];
  MutexLock lock(&shard.mutex);
  shard.work.erase(place_);
}

void WorkBoard::Entry::Stage(const char* stage) {
  if (board_ == nullptr) return;
  const absl::Time now = board_->clock_->Now();
  Shard& shard = board_->shards_[shard_];
  MutexLock lock(&shard.mutex);
  place_->stage = stage;
  place_->since = now;
  place_->id = shard.next_id++ * kShards + shard_;
}

std::vector<WorkInHand> WorkBoard::List() const {
  std::vector<WorkInHand> all;
  for (const Shard& shard : shards_) {
    MutexLock lock(&shard.mutex);
    all.insert(all.end(), shard.work.begin(), shard.work.end());
  }
  return all;
}

}  // namespace ballast
