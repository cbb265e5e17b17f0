#include "server/service/timing_store.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/module.h"
#include "server/delivery/loader.h"

namespace ballast {
namespace {

std::string Describe(size_t index, const v1::StepTiming& timing) {
  return absl::StrCat("timings[", index, "] of ",
                      ModuleName(timing.role().module()), " rank ",
                      timing.role().dp_rank(), " in step ", timing.step(),
                      " micro-batch ", timing.micro_batch());
}

}  // namespace

TimingStore::TimingStore(const v1::Job& job) : job_(job) {
  for (const v1::Job::ModuleSize& module : job.modules()) {
    grid_ = std::lcm(grid_, std::max<uint64_t>(module.dp(), 1));
  }
}

absl::Status TimingStore::Check(const v1::StepTiming& timing) const {
  BALLAST_RETURN_IF_ERROR(CheckRole(job_, timing.role()));
  const uint64_t samples = job_.global_batch();
  if (timing.step() >= std::numeric_limits<uint64_t>::max() / samples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "step is ", timing.step(), ", whose positions do not fit 64 bits"));
  }
  // Each of the grid's groups has a sample in every micro-batch.
  const uint64_t micro_batches = std::max<uint64_t>(samples / grid_, 1);
  if (timing.micro_batch() >= micro_batches) {
    return absl::InvalidArgumentError(absl::StrCat(
        "micro_batch is ", timing.micro_batch(), ", wanted less than ",
        micro_batches, ", the most that a step of ", samples,
        " samples has when its data-parallel sizes make a grid of ", grid_));
  }
  if (!std::isfinite(timing.milliseconds()) || timing.milliseconds() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("milliseconds is ", timing.milliseconds(),
                     ", wanted a finite time of at least 0"));
  }
  return absl::OkStatus();
}

absl::Status TimingStore::Add(absl::Span<const v1::StepTiming* const> timings) {
  if (timings.empty() || timings.size() > kMaxReported) {
    return absl::InvalidArgumentError(
        absl::StrCat("timings has ", timings.size(), " entries, wanted 1 to ",
                     kMaxReported));
  }
  for (size_t i = 0; i < timings.size(); ++i) {
    BALLAST_RETURN_IF_ERROR(
        Annotate(Check(*timings[i]), Describe(i, *timings[i])));
  }
  MutexLock lock(&mutex_);
  for (const v1::StepTiming* const timing : timings) {
    const Key key(timing->step(), timing->micro_batch(),
                  timing->role().module(), timing->role().dp_rank());
    const Kept kept = {key, timing->milliseconds()};
    if (const auto found = places_.find(key); found != places_.end()) {
      ring_[found->second] = kept;
    } else if (ring_.size() < kMaxTimings) {
      places_[key] = ring_.size();
      ring_.push_back(kept);
    } else {
      places_.erase(ring_[oldest_].key);
      places_[key] = oldest_;
      ring_[oldest_] = kept;
      oldest_ = (oldest_ + 1) % kMaxTimings;
    }
  }
  return absl::OkStatus();
}

std::vector<v1::StepTiming> TimingStore::Get(uint64_t from_step,
                                             v1::Module module) const {
  std::vector<Kept> wanted;
  {
    MutexLock lock(&mutex_);
    for (const Kept& kept : ring_) {
      if (std::get<0>(kept.key) < from_step) continue;
      if (module != v1::MODULE_UNSPECIFIED && std::get<2>(kept.key) != module) {
        continue;
      }
      wanted.push_back(kept);
    }
  }
  std::sort(wanted.begin(), wanted.end(),
            [](const Kept& a, const Kept& b) { return a.key < b.key; });
  std::vector<v1::StepTiming> timings;
  timings.reserve(wanted.size());
  for (const Kept& kept : wanted) {
    const auto& [step, micro_batch, kept_module, rank] = kept.key;
    v1::StepTiming& timing = timings.emplace_back();
    timing.mutable_role()->set_module(static_cast<v1::Module>(kept_module));
    timing.mutable_role()->set_dp_rank(rank);
    timing.set_step(step);
    timing.set_micro_batch(micro_batch);
    timing.set_milliseconds(kept.milliseconds);
  }
  return timings;
}

}  // namespace ballast
