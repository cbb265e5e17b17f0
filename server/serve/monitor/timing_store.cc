#include "server/serve/monitor/timing_store.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "server/delivery/loader.h"

namespace ballast {
namespace {

std::string Describe(size_t index, const v1::StepTiming& timing) {
  return absl::StrCat("timings[", index, "] of ",
                      ModuleName(timing.role().module()), " rank ",
                      timing.role().dp_rank(), " in step ", timing.step(),
                      " micro-batch ", timing.micro_batch());
}

absl::Status CheckTime(absl::string_view field, double milliseconds) {
  if (std::isfinite(milliseconds) && milliseconds >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " is ", milliseconds, ", wanted a finite time of at least 0"));
}

}  // namespace

TimingStore::TimingStore(const v1::Job& job, JobAt job_at)
    : job_(job), job_at_(std::move(job_at)) {
  for (const v1::Job::ModuleSize& module : job.modules()) {
    grid_ = std::lcm(grid_, std::max<uint64_t>(module.dp(), 1));
  }
}

absl::Status TimingStore::Check(const v1::StepTiming& timing) const {
  const v1::Job& job = job_at_ == nullptr ? job_ : job_at_(timing.step());
  BALLAST_RETURN_IF_ERROR(CheckRole(job, timing.role()));
  if (timing.role().split() != v1::SPLIT_TRAIN) {
    return absl::InvalidArgumentError(
        absl::StrCat("role.split is ", SplitName(timing.role().split()),
                     ", wanted train: costs are fitted to forward and backward "
                     "passes, and other splits have no backward pass"));
  }
  // 0: only its schedule has it.
  const uint64_t samples = SamplesOfStep(job, timing.step());
  if (samples != 0 && !FirstPosition(job, timing.step()).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "step is ", timing.step(), ", whose positions do not fit 64 bits"));
  }
  // Each of the grid's groups, or of those that share a pack, has at least one
  // sample in every micro-batch.
  const uint64_t sharing = std::max(job.dynamic_cp(), 1u);
  const uint64_t micro_batches =
      std::max<uint64_t>(samples * sharing / grid_, 1);
  if (samples != 0 && timing.micro_batch() >= micro_batches) {
    return absl::InvalidArgumentError(absl::StrCat(
        "micro_batch is ", timing.micro_batch(), ", wanted less than ",
        micro_batches, ", the most that a step of ", samples,
        " samples has when its data-parallel sizes make a grid of ", grid_));
  }
  BALLAST_RETURN_IF_ERROR(CheckTime("milliseconds", timing.milliseconds()));
  BALLAST_RETURN_IF_ERROR(
      CheckTime("wait_milliseconds", timing.wait_milliseconds()));
  BALLAST_RETURN_IF_ERROR(
      CheckTime("copy_milliseconds", timing.copy_milliseconds()));
  BALLAST_RETURN_IF_ERROR(
      CheckTime("exchange_milliseconds", timing.exchange_milliseconds()));
  BALLAST_RETURN_IF_ERROR(
      CheckTime("decode_milliseconds", timing.decode_milliseconds()));
  return CheckTime("pack_milliseconds", timing.pack_milliseconds());
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
    const Kept kept = {key, GetTimes(*timing)};
    Count(kept);
    const std::pair<int, uint32_t> rank = {timing->role().module(),
                                           timing->role().dp_rank()};
    if (latest_.count(rank) != 0 || latest_.size() < kMaxRanks) {
      latest_[rank] = kept;
    }
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
  for (const Kept& kept : wanted) timings.push_back(GetTiming(kept));
  return timings;
}

std::vector<v1::StepTiming> TimingStore::Latest() const {
  MutexLock lock(&mutex_);
  std::vector<v1::StepTiming> timings;
  for (const auto& [rank, kept] : latest_) timings.push_back(GetTiming(kept));
  return timings;
}

const std::array<DurationHistogram, TimingStore::kPhases>* TimingStore::phases(
    v1::Module module) const {
  return v1::Module_IsValid(module) ? &phases_[module] : nullptr;
}

void TimingStore::Count(const Kept& kept) {
  for (int phase = 0; phase < kPhases; ++phase) {
    if (kept.times[phase] < 0) continue;
    phases_[std::get<2>(kept.key)][phase].Record(
        absl::Milliseconds(kept.times[phase]));
  }
}

TimingStore::Times TimingStore::GetTimes(const v1::StepTiming& timing) {
  const auto told = [](bool has, double value) { return has ? value : -1.0; };
  return {
      timing.milliseconds(),
      told(timing.has_wait_milliseconds(), timing.wait_milliseconds()),
      told(timing.has_copy_milliseconds(), timing.copy_milliseconds()),
      told(timing.has_exchange_milliseconds(), timing.exchange_milliseconds()),
      told(timing.has_decode_milliseconds(), timing.decode_milliseconds()),
      told(timing.has_pack_milliseconds(), timing.pack_milliseconds())};
}

v1::StepTiming TimingStore::GetTiming(const Kept& kept) {
  const auto& [step, micro_batch, module, rank] = kept.key;
  v1::StepTiming timing;
  timing.mutable_role()->set_module(static_cast<v1::Module>(module));
  timing.mutable_role()->set_dp_rank(rank);
  timing.set_step(step);
  timing.set_micro_batch(micro_batch);
  timing.set_milliseconds(kept.times[kTrain]);
  if (kept.times[kWait] >= 0) timing.set_wait_milliseconds(kept.times[kWait]);
  if (kept.times[kCopy] >= 0) timing.set_copy_milliseconds(kept.times[kCopy]);
  if (kept.times[kExchange] >= 0) {
    timing.set_exchange_milliseconds(kept.times[kExchange]);
  }
  if (kept.times[kDecode] >= 0) {
    timing.set_decode_milliseconds(kept.times[kDecode]);
  }
  if (kept.times[kPack] >= 0) timing.set_pack_milliseconds(kept.times[kPack]);
  return timing;
}

}  // namespace ballast
