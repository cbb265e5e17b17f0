#ifndef BALLAST_SERVER_DELIVERY_AHEAD_FETCHER_H_
#define BALLAST_SERVER_DELIVERY_AHEAD_FETCHER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "server/delivery/worker_pool.h"
#include "server/files/disk_cache.h"
#include "server/sample/sample_source.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// A sample that a server will read.
struct AheadSample {
  uint64_t position = 0;
  uint32_t source = 0;
  uint64_t ordinal = 0;

  friend bool operator==(const AheadSample&, const AheadSample&) = default;
};

// The ranks of one module that a server serves, and whose samples they pull.
struct ServedModule {
  std::set<uint32_t> ranks;
  DeliveryRule rule;
};

// The samples of a step that a server reads for `served`, each once, in the
// order in which its blocks need them: by micro-batch, then by position. Pure.
std::vector<AheadSample> SamplesToRead(
    const v1::StepSchedule& schedule,
    const std::map<v1::Module, ServedModule>& served);

// Fetches from stores what the next steps of train need, in the order of need,
// and evicts from the cache what is needed last (entry_file.h). Without a cache
// it fetches into memory, up to `memory` bytes.
class AheadFetcher {
 public:
  struct Settings {
    const Scheduler* scheduler = nullptr;       // of train
    std::vector<const SampleSource*> sources;   // of the configuration
    std::map<v1::Module, ServedModule> served;  // by this server
    std::shared_ptr<DiskCache> cache;           // may be null
    uint64_t memory = 0;  // bytes fetched ahead without a cache
    uint32_t ahead_steps = 0;
    // Threads that fetch at the same time. All but one are started when a step
    // has to be fetched, and kept.
    uint32_t threads = 1;
  };

  explicit AheadFetcher(Settings settings);
  // Ends Start's thread; waits for the requests in flight.
  ~AheadFetcher();
  AheadFetcher(const AheadFetcher&) = delete;
  AheadFetcher& operator=(const AheadFetcher&) = delete;

  // Follows training in its own thread until the destructor: keeps the steps
  // after `current_step()`, up to `ahead_steps` further, fetched.
  // `current_step` is called a few times a second; nullopt: nobody trains.
  // Errors: as StartThread.
  absl::Status Start(std::function<std::optional<uint64_t>()> current_step);

  // Fetches the samples of steps `first` to `end` - 1 and returns when they are
  // fetched. `progress` is called with the number of steps done and the bytes
  // that came from the store so far. Errors: as SampleSource::FetchAhead,
  // naming the sample; RESOURCE_EXHAUSTED (the cache is full of data that is
  // needed earlier); as the scheduler. Must not be used together with Start.
  absl::Status Fetch(
      uint64_t first, uint64_t end,
      const std::function<void(uint64_t steps, uint64_t bytes)>& progress);

  // The first step whose samples have not all been fetched; 0: unknown.
  uint64_t fetched_to_step() const { return fetched_to_; }

  // Number of threads started in addition to Start's: 0 while nothing has to be
  // fetched.
  size_t threads_started() const { return threads_.started(); }

 private:
  void Follow(const std::function<std::optional<uint64_t>()>& current_step);
  // Fetches one step. Errors as Fetch.
  absl::Status FetchStep(uint64_t step);
  absl::Status FetchSample(uint64_t step, const AheadSample& sample);
  bool MakeRoomFor(uint64_t step, uint64_t position, uint64_t bytes);
  // The first position that is still needed; at most `position`.
  uint64_t NextPosition(uint64_t position);
  // Forgets the steps up to `step`.
  void Pass(uint64_t step);
  // Waits until the destructor runs, at most `time`. Returns whether it does.
  bool Stopped(absl::Duration time);

  const Settings settings_;
  std::atomic<uint64_t> fetched_to_{0};
  std::atomic<uint64_t> bytes_{0};
  Mutex mutex_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  // For each step that has been fetched and not passed: the first position that
  // it or a later step reads.
  std::map<uint64_t, uint64_t> first_positions_ ABSL_GUARDED_BY(mutex_);
  // Bytes fetched ahead into memory, by step.
  std::map<uint64_t, uint64_t> ahead_ ABSL_GUARDED_BY(mutex_);
  uint64_t ahead_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Mutex room_mutex_;  // one makes room at a time
  KeptThreads threads_;
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_AHEAD_FETCHER_H_
