#ifndef BALLAST_SERVER_DELIVERY_STALL_WATCHDOG_H_
#define BALLAST_SERVER_DELIVERY_STALL_WATCHDOG_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/schedule.pb.h"

namespace ballast {

// A sample that a worker is building, or a schedule that it computes.
struct ActiveSample {
  v1::Module module = v1::MODULE_UNSPECIFIED;
  uint64_t position = 0;
  uint32_t source = 0;  // its number in the configuration
  uint64_t ordinal = 0;
  const char* stage = "";  // a literal: "reading text", "decoding an image", …
  absl::Time since;        // start of the stage
  uint64_t id = 0;         // of the stage; unique
  // Set for the schedule of this step, whose samples are looked up in the
  // index: module, position, source and ordinal then mean nothing.
  std::optional<uint64_t> step;
  v1::Split split = v1::SPLIT_TRAIN;  // of the step, and of a sample's
  uint64_t sample_step = 0;           // of the sample's block
};

// The samples that all workers are building now. Thread-safe; threads rarely
// share a lock, and no two locks share a cache line.
class ActiveSamples {
 public:
  explicit ActiveSamples(Clock* clock) : clock_(clock) {}  // outlives this

  // Lists a sample until it is destroyed. For one thread.
  class Scope {
   public:
    // Does nothing if `samples` is null. `since` and `id` of `sample` are
    // ignored.
    Scope(ActiveSamples* samples, const ActiveSample& sample);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    // Moves the sample to its next stage.
    void Stage(const char* stage);

   private:
    ActiveSamples* const samples_;
    const size_t shard_;
    std::list<ActiveSample>::iterator place_;
  };

  std::vector<ActiveSample> List() const;

  // When a stage last began, of any sample or schedule; InfinitePast if none
  // has.
  absl::Time last_begun() const;

 private:
  static constexpr size_t kShards = 64;
  struct alignas(64) Shard {
    // Makes `stage` begin now for a sample of this shard, which is `number`.
    void Begin(ActiveSample* sample, const char* stage, absl::Time now,
               size_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

    mutable Mutex mutex;
    std::list<ActiveSample> samples ABSL_GUARDED_BY(mutex);
    uint64_t next_id ABSL_GUARDED_BY(mutex) = 0;
    absl::Time last_begun ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
  };

  Clock* const clock_;
  std::array<Shard, kShards> shards_;
};

// The samples whose stage has lasted `after` or longer, oldest stage first.
// Pure.
std::vector<ActiveSample> Stalled(absl::Span<const ActiveSample> work,
                                  absl::Time now, absl::Duration after);

// Whether all work has stopped: something has stalled, and no stage has begun
// for `after`, the last one at `last_begun`. Pure.
inline bool NothingGoesOn(absl::Span<const ActiveSample> stalled,
                          absl::Time last_begun, absl::Time now,
                          absl::Duration after) {
  return !stalled.empty() && now - last_begun >= after;
}

// Reports each stall once. Pure; thread-compatible.
class StallReports {
 public:
  // The entries of `stalled` that were not in the previous call.
  std::vector<ActiveSample> New(absl::Span<const ActiveSample> stalled);

 private:
  std::set<uint64_t> reported_;
};

// Checks the active samples periodically, in its own thread, and logs each
// stage that lasts too long once, with file and place. Thread-safe.
class StallWatchdog {
 public:
  // Names the sample: "docs:17 (docs-000.tar at byte 512)"; of a schedule, the
  // files of the index. Reads no file: it may hang.
  using Describe = std::function<std::string(const ActiveSample& work)>;

  // `samples` and `clock` are not owned and outlive this. Errors:
  // RESOURCE_EXHAUSTED (no thread).
  static absl::StatusOr<std::unique_ptr<StallWatchdog>> Start(
      const ActiveSamples* samples, absl::Duration after, Describe describe,
      Clock* clock);

  // Calls `on_change` with true once all work has stopped (NothingGoesOn), and
  // with false once it goes on, from the watchdog's thread. Replaces the
  // previous function, whose last call has then returned; null: none.
  void WatchStandstill(std::function<void(bool stands_still)> on_change);

  // Changes `after` from now on. The thread notices when its present sleep, a
  // quarter of the old value, ends.
  void SetAfter(absl::Duration after) { after_.Set(after); }

  // The samples that are stalled now.
  std::vector<ActiveSample> Stalls() const;

 private:
  StallWatchdog(const ActiveSamples* samples, absl::Duration after,
                Describe describe, Clock* clock);
  void Look();
  void LookForStandstill(bool stands_still);

  const ActiveSamples* const samples_;
  LiveValue<absl::Duration> after_;
  const Describe describe_;
  Clock* const clock_;
  StallReports reports_;  // used only by the ticker's thread
  Mutex mutex_;
  std::function<void(bool)> on_change_ ABSL_GUARDED_BY(mutex_);
  bool stands_still_ = false;       // used only by the ticker's thread
  std::unique_ptr<Ticker> ticker_;  // last: its thread uses all the others
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_STALL_WATCHDOG_H_
