#include "trainer_shim/region_pins.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads.h"

namespace ballast {

RegionPins::RegionPins(MemoryPinner* pinner, const Options& options)
    : pinner_(pinner),
      interval_(options.interval),
      sleeper_(options.clock->NewSleeper()) {}

absl::StatusOr<std::unique_ptr<RegionPins>> RegionPins::Create(
    MemoryPinner* pinner, const Options& options) {
  std::unique_ptr<RegionPins> pins(new RegionPins(pinner, options));
  BALLAST_ASSIGN_OR_RETURN(
      pins->thread_,
      StartThread("unpin blocks", [raw = pins.get()] { raw->Run(); }));
  return pins;
}

RegionPins::~RegionPins() {
  sleeper_->Wake();
  if (thread_.joinable()) thread_.join();
  MutexLock lock(&mutex_);
  for (const auto& [region, state] : regions_) {
    if (state == State::kPinned) Unpin(*region);
  }
}

bool RegionPins::Pin(const std::shared_ptr<const MemoryRegion>& region) {
  if (region == nullptr) return false;
  {
    MutexLock lock(&mutex_);
    while (true) {
      const auto [entry, is_new] =
          regions_.try_emplace(region, State::kChanging);
      if (is_new) break;
      if (entry->second != State::kChanging) {
        return entry->second == State::kPinned;
      }
      changed_.Wait(&mutex_);
    }
  }
  const absl::Status status = pinner_->Pin(*region);
  if (!status.ok()) {
    LogInfo(absl::StrCat(status.message(),
                         "; blocks are copied to pinned memory instead"));
  }
  MutexLock lock(&mutex_);
  regions_[region] = status.ok() ? State::kPinned : State::kRefused;
  changed_.NotifyAll();
  return status.ok();
}

size_t RegionPins::regions() const {
  MutexLock lock(&mutex_);
  return regions_.size();
}

void RegionPins::Run() {
  while (sleeper_->Sleep(interval_)) LetGo();
}

void RegionPins::LetGo() {
  while (true) {
    // Released outside the lock, since unmapping takes time.
    std::shared_ptr<const MemoryRegion> idle;
    bool pinned = false;
    {
      MutexLock lock(&mutex_);
      const auto found =
          std::find_if(regions_.begin(), regions_.end(), [](const auto& entry) {
            return entry.first.use_count() == 1 &&
                   entry.second != State::kChanging;
          });
      if (found == regions_.end()) return;
      idle = found->first;
      pinned = found->second == State::kPinned;
      found->second = State::kChanging;
    }
    // A new connection may map the region again meanwhile: its first Pin waits
    // and then pins the region anew.
    if (pinned) Unpin(*idle);
    MutexLock lock(&mutex_);
    regions_.erase(idle);
    changed_.NotifyAll();
  }
}

void RegionPins::Unpin(const MemoryRegion& region) {
  const absl::Status status = pinner_->Unpin(region);
  if (!status.ok()) LogError(status.message());
}

}  // namespace ballast
