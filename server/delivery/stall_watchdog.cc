#include "server/delivery/stall_watchdog.h"

#include <algorithm>
#include <utility>

#include "common/instruments.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

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

std::vector<ActiveSample> Stalled(absl::Span<const ActiveSample> work,
                                  absl::Time now, absl::Duration after) {
  std::vector<ActiveSample> stalled;
  for (const ActiveSample& item : work) {
    if (now - item.since >= after) stalled.push_back(item);
  }
  std::sort(stalled.begin(), stalled.end(),
            [](const ActiveSample& a, const ActiveSample& b) {
              return std::make_pair(a.since, a.id) <
                     std::make_pair(b.since, b.id);
            });
  return stalled;
}

std::vector<ActiveSample> StallReports::New(
    absl::Span<const ActiveSample> stalled) {
  std::vector<ActiveSample> fresh;
  std::set<uint64_t> ids;
  for (const ActiveSample& item : stalled) {
    ids.insert(item.id);
    if (reported_.count(item.id) == 0) fresh.push_back(item);
  }
  reported_ = std::move(ids);
  return fresh;
}

absl::StatusOr<std::unique_ptr<StallWatchdog>> StallWatchdog::Start(
    const ActiveSamples* samples, absl::Duration after, Describe describe,
    Clock* clock) {
  std::unique_ptr<StallWatchdog> watch(
      new StallWatchdog(samples, after, std::move(describe), clock));
  BALLAST_ASSIGN_OR_RETURN(
      watch->ticker_,
      Ticker::Start(
          "watch for stalls", [w = watch.get()] { return w->after_.Get() / 4; },
          [w = watch.get()] { w->Look(); }, clock));
  return watch;
}

StallWatchdog::StallWatchdog(const ActiveSamples* samples, absl::Duration after,
                             Describe describe, Clock* clock)
    : samples_(samples),
      after_(after),
      describe_(std::move(describe)),
      clock_(clock) {}

std::vector<ActiveSample> StallWatchdog::Stalls() const {
  return Stalled(samples_->List(), clock_->Now(), after_.Get());
}

void StallWatchdog::WatchStandstill(std::function<void(bool)> on_change) {
  MutexLock lock(&mutex_);
  on_change_ = std::move(on_change);
}

void StallWatchdog::LookForStandstill(bool stands_still) {
  MutexLock lock(&mutex_);
  if (on_change_ == nullptr || stands_still == stands_still_) return;
  stands_still_ = stands_still;
  on_change_(stands_still);
}

void StallWatchdog::Look() {
  const absl::Time now = clock_->Now();
  const absl::Duration after = after_.Get();
  const std::vector<ActiveSample> stalled =
      Stalled(samples_->List(), now, after);
  for (const ActiveSample& item : reports_.New(stalled)) {
    const std::string taken = absl::FormatDuration(
        absl::Trunc(now - item.since, absl::Milliseconds(100)));
    if (item.step.has_value()) {
      LogWarning("stall: ", item.stage, " for the schedule of ",
                 SplitWord(item.split), "step ", *item.step, " has taken ",
                 taken, "; does the file system of ", describe_(item),
                 " answer?");
      continue;
    }
    LogWarning("stall: ", item.stage, " of ", describe_(item), " for ",
               ModuleName(item.module), " position ", item.position,
               " has taken ", taken);
  }
  LookForStandstill(NothingGoesOn(stalled, samples_->last_begun(), now, after));
}

}  // namespace ballast
