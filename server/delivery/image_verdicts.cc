#include "server/delivery/image_verdicts.h"

namespace ballast {

void ImageVerdicts::Put(uint64_t position, const absl::Status& verdict) {
  Shard& shard = shards_[position % kShards];
  MutexLock lock(&shard.mutex);
  const auto [entry, added] =
      shard.verdicts.insert_or_assign(position, verdict);
  if (!added) return;
  shard.ages.push_back(position);
  if (shard.ages.size() <= kMost / kShards) return;
  shard.verdicts.erase(shard.ages.front());
  shard.ages.pop_front();
}

std::optional<absl::Status> ImageVerdicts::Get(uint64_t position) const {
  const Shard& shard = shards_[position % kShards];
  MutexLock lock(&shard.mutex);
  const auto found = shard.verdicts.find(position);
  if (found == shard.verdicts.end()) return std::nullopt;
  return found->second;
}

}  // namespace ballast
