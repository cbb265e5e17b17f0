#ifndef BALLAST_SERVER_DELIVERY_ACTIVE_SAMPLES_H_
#define BALLAST_SERVER_DELIVERY_ACTIVE_SAMPLES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
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
  v1::Split split = v1::SPLIT_TRAIN;  // of the step
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

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_ACTIVE_SAMPLES_H_
