#include "server/delivery/ahead_fetcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "proto/schedule/schedule_table.h"
#include "server/files/entry_file.h"

namespace ballast {

std::vector<AheadSample> SamplesToRead(
    const v1::StepSchedule& schedule,
    const std::map<v1::Module, ServedModule>& served) {
  std::vector<AheadSample> samples;
  for (const v1::MicroBatchSchedule& batch : schedule.micro_batches()) {
    const size_t begin = samples.size();
    for (int i = 0; i < batch.position_size(); ++i) {
      const bool reads = std::any_of(
          batch.modules().begin(), batch.modules().end(),
          [&](const v1::ModuleSchedule& module) {
            const auto found = served.find(module.module());
            if (found == served.end()) return false;
            for (uint32_t k = 0; k < PackRanks(module, i); ++k) {
              if (found->second.ranks.count(found->second.rule.GetPuller(
                      module.reader(i), module.owner(i) + k)) != 0) {
                return true;
              }
            }
            return false;
          });
      if (!reads) continue;
      samples.push_back({batch.position(i), batch.source(i), batch.ordinal(i)});
    }
    std::sort(samples.begin() + begin, samples.end(),
              [](const AheadSample& a, const AheadSample& b) {
                return a.position < b.position;
              });
  }
  return samples;
}

namespace {

constexpr absl::Duration kLook = absl::Milliseconds(100);
// Pause after a failure of the store. Readers of the store get the failure,
// too.
constexpr absl::Duration kPause = absl::Seconds(5);
// How far the future is searched for the next use of a cached range.
constexpr uint64_t kHorizon = uint64_t{16} << 20;

}  // namespace

AheadFetcher::AheadFetcher(Settings settings)
    : settings_(std::move(settings)), threads_(settings_.threads) {}

AheadFetcher::~AheadFetcher() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

absl::Status AheadFetcher::Start(
    std::function<std::optional<uint64_t>()> current_step) {
  BALLAST_ASSIGN_OR_RETURN(
      thread_, StartThread("fetch files ahead",
                           [this, current_step = std::move(current_step)] {
                             Follow(current_step);
                           }));
  return absl::OkStatus();
}

bool AheadFetcher::Stopped(absl::Duration time) {
  MutexLock lock(&mutex_);
  if (!stop_ && time > absl::ZeroDuration()) {
    changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(time));
  }
  return stop_;
}

void AheadFetcher::Follow(
    const std::function<std::optional<uint64_t>()>& current_step) {
  std::optional<uint64_t> last;
  bool warned = false;
  absl::Duration wait = kLook;
  while (!Stopped(std::exchange(wait, kLook))) {
    const std::optional<uint64_t> current = current_step();
    if (!current.has_value()) continue;
    // Training restarted at an earlier step.
    if (last.has_value() && *current < *last) {
      fetched_to_ = 0;
      Pass(UINT64_MAX);
    }
    last = current;
    Pass(*current);
    uint64_t next = std::max<uint64_t>(fetched_to_, *current + 1);
    const uint64_t end = *current + 1 + settings_.ahead_steps;
    if (next >= end) continue;
    const absl::Status status = FetchStep(next);
    if (status.ok()) {
      fetched_to_ = next + 1;
      warned = false;
      wait = absl::ZeroDuration();
      continue;
    }
    // The end of the data, or no room until training advances.
    if (absl::IsOutOfRange(status) || absl::IsResourceExhausted(status)) {
      continue;
    }
    if (!std::exchange(warned, true)) {
      LogWarning("step ", next, " is not fetched ahead: ", status.message());
    }
    if (Stopped(kPause)) return;
  }
}

absl::Status AheadFetcher::Fetch(
    uint64_t first, uint64_t end,
    const std::function<void(uint64_t steps, uint64_t bytes)>& progress) {
  for (uint64_t step = first; step < end; ++step) {
    BALLAST_RETURN_IF_ERROR(FetchStep(step));
    fetched_to_ = step + 1;
    progress(step + 1 - first, bytes_);
  }
  return absl::OkStatus();
}

absl::Status AheadFetcher::FetchStep(uint64_t step) {
  BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                           settings_.scheduler->Schedule(step));
  std::vector<AheadSample> samples = SamplesToRead(schedule, settings_.served);
  // Sources that joined the running job are read when they are needed.
  std::erase_if(samples, [&](const AheadSample& sample) {
    return sample.source >= settings_.sources.size();
  });
  if (!samples.empty()) {
    const auto first =
        std::min_element(samples.begin(), samples.end(),
                         [](const AheadSample& a, const AheadSample& b) {
                           return a.position < b.position;
                         });
    MutexLock lock(&mutex_);
    first_positions_[step] = first->position;
  }
  // Most samples of a later epoch are in the cache: no thread wakes for them.
  std::erase_if(samples, [&](const AheadSample& sample) {
    return settings_.sources[sample.source]->IsHere(sample.ordinal);
  });
  std::vector<absl::Status> results(samples.size());
  threads_.Run(samples.size(), [&](size_t i) {
    results[i] = FetchSample(step, samples[i]);
    return results[i].ok() && !Stopped(absl::ZeroDuration());
  });
  for (absl::Status& result : results) BALLAST_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

absl::Status AheadFetcher::FetchSample(uint64_t step,
                                       const AheadSample& sample) {
  const SampleSource& source = *settings_.sources[sample.source];
  const absl::StatusOr<uint64_t> bytes =
      source.FetchAhead(sample.ordinal, [&](uint64_t wanted) {
        return MakeRoomFor(step, sample.position, wanted);
      });
  if (bytes.ok()) {
    bytes_ += *bytes;
    return absl::OkStatus();
  }
  const SampleLocation at = source.Locate(sample.ordinal);
  return Annotate(bytes.status(),
                  absl::StrCat(at.file, ": sample ", sample.ordinal));
}

bool AheadFetcher::MakeRoomFor(uint64_t step, uint64_t position,
                               uint64_t bytes) {
  if (settings_.cache == nullptr) {
    MutexLock lock(&mutex_);
    if (ahead_bytes_ > 0 && ahead_bytes_ + bytes > settings_.memory) {
      return false;
    }
    ahead_[step] += bytes;
    ahead_bytes_ += bytes;
    return true;
  }
  if (settings_.cache->HasRoom(bytes)) return true;
  MutexLock room_lock(&room_mutex_);
  const uint64_t from = NextPosition(position);
  return settings_.cache->MakeRoom(
      bytes, position, [&](absl::Span<const uint64_t> owners) {
        return NextUses(owners, from, from + kHorizon,
                        [&](uint64_t at, std::vector<uint64_t>* used) {
                          const Scheduler::OrderedSample sample =
                              settings_.scheduler->OrderedAt(at);
                          if (sample.source >= settings_.sources.size()) return;
                          settings_.sources[sample.source]->AddOwners(
                              sample.ordinal, used);
                        });
      });
}

uint64_t AheadFetcher::NextPosition(uint64_t position) {
  MutexLock lock(&mutex_);
  return first_positions_.empty()
             ? position
             : std::min(position, first_positions_.begin()->second);
}

void AheadFetcher::Pass(uint64_t step) {
  MutexLock lock(&mutex_);
  first_positions_.erase(first_positions_.begin(),
                         first_positions_.upper_bound(step));
  while (!ahead_.empty() && ahead_.begin()->first <= step) {
    ahead_bytes_ -= ahead_.begin()->second;
    ahead_.erase(ahead_.begin());
  }
}

}  // namespace ballast
