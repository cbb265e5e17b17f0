#include "server/delivery/image_check_cache.h"

#include <utility>

namespace ballast {

void ImageCheckCache::Put(v1::Split split, uint64_t position,
                          SampleCheck check) {
  Shard& shard = shards_[split][position % kShards];
  MutexLock lock(&shard.mutex);
  const auto [known, added] =
      shard.checks.insert_or_assign(position, std::move(check));
  if (!added) return;
  shard.positions.push_back(position);
  if (shard.positions.size() <= kMaxCount / kShards) return;
  shard.checks.erase(shard.positions.front());
  shard.positions.pop_front();
}

std::optional<SampleCheck> ImageCheckCache::Get(v1::Split split,
                                                uint64_t position) const {
  const Shard& shard = shards_[split][position % kShards];
  MutexLock lock(&shard.mutex);
  const auto found = shard.checks.find(position);
  if (found == shard.checks.end()) return std::nullopt;
  return found->second;
}

}  // namespace ballast
