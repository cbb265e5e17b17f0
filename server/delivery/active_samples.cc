#include "server/delivery/active_samples.h"

#include <algorithm>

#include "common/instruments.h"

namespace ballast {

ActiveSamples::Scope::Scope(ActiveSamples* samples, const ActiveSample& sample)
    : samples_(samples), shard_(ShardOfThread(kShards)) {
  if (samples_ == nullptr) return;
  const absl::Time now = samples_->clock_->Now();
  Shard& shard = samples_->shards_[shard_];
  MutexLock lock(&shard.mutex);
  place_ = shard.samples.insert(shard.samples.end(), sample);
  shard.Begin(&*place_, sample.stage, now, shard_);
}

ActiveSamples::Scope::~Scope() {
  if (samples_ == nullptr) return;
  Shard& shard = samples_->shards_[shard_];
  MutexLock lock(&shard.mutex);
  shard.samples.erase(place_);
}

void ActiveSamples::Scope::Stage(const char* stage) {
  if (samples_ == nullptr) return;
  const absl::Time now = samples_->clock_->Now();
  Shard& shard = samples_->shards_[shard_];
  MutexLock lock(&shard.mutex);
  shard.Begin(&*place_, stage, now, shard_);
}

void ActiveSamples::Shard::Begin(ActiveSample* sample, const char* stage,
                                 absl::Time now, size_t number) {
  sample->stage = stage;
  sample->since = now;
  sample->id = next_id++ * kShards + number;
  last_begun = now;
}

std::vector<ActiveSample> ActiveSamples::List() const {
  std::vector<ActiveSample> all;
  for (const Shard& shard : shards_) {
    MutexLock lock(&shard.mutex);
    all.insert(all.end(), shard.samples.begin(), shard.samples.end());
  }
  return all;
}

absl::Time ActiveSamples::last_begun() const {
  absl::Time last = absl::InfinitePast();
  for (const Shard& shard : shards_) {
    MutexLock lock(&shard.mutex);
    last = std::max(last, shard.last_begun);
  }
  return last;
}

}  // namespace ballast
