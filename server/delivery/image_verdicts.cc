#include "server/delivery/image_verdicts.h"

namespace ballast {

void ImageVerdicts::Begin(uint64_t position) {
  Shard& shard = shards_[position % kShards];
  MutexLock lock(&shard.mutex);
  ++shard.begun[position];
}

void ImageVerdicts::Put(uint64_t position, const absl::Status& verdict) {
  Shard& shard = shards_[position % kShards];
  MutexLock lock(&shard.mutex);
  const auto begun = shard.begun.find(position);
  if (begun != shard.begun.end()) {
    if (--begun->second == 0) shard.begun.erase(begun);
    shard.changed.NotifyAll();
  }
  const auto [entry, added] =
      shard.verdicts.insert_or_assign(position, verdict);
  if (!added) return;
  shard.ages.push_back(position);
  if (shard.ages.size() <= kMost / kShards) return;
  shard.verdicts.erase(shard.ages.front());
  shard.ages.pop_front();
}

std::optional<absl::Status> ImageVerdicts::Await(uint64_t position) {
  Shard& shard = shards_[position % kShards];
  MutexLock lock(&shard.mutex);
  while (true) {
    const auto found = shard.verdicts.find(position);
    if (found != shard.verdicts.end()) return found->second;
    if (shard.begun.count(position) == 0) return std::nullopt;
    shard.changed.Wait(&shard.mutex);
  }
}

}  // namespace ballast
