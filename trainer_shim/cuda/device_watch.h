#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_WATCH_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_WATCH_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/staging_kernels.h"

namespace ballast {

// Converts a finding to a status: OK or DATA_LOSS. Pure. `batch` names the step
// and micro-batch.
absl::Status ToStatus(const Finding& finding, const std::string& batch);

// Watches, in its own thread, device work that may never end: an exchange whose
// peer is gone waits on the device forever, and the host would wait for it. The
// first error aborts the communicators, which ends that work. Thread-safe.
class DeviceWatch {
 public:
  struct Options {
    int device = 0;
    absl::Duration timeout = absl::Minutes(10);
    absl::Duration interval = absl::Milliseconds(20);  // between looks
    Clock* clock = Clock::Real();                      // outlives the watch
    // Called at each look, on a thread whose current device is `device`. Must
    // not wait.
    std::function<void()> on_look;
  };

  // Owns neither the communicators, any of which may be null, nor `finding`,
  // pinned memory that the device writes to; all outlive the watch. Errors: as
  // StartThread.
  static absl::StatusOr<std::unique_ptr<DeviceWatch>> Create(
      std::vector<Communicator*> communicators, const volatile Finding* finding,
      const Options& options);
  ~DeviceWatch();  // joins
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Call before work is enqueued, on any stream. `name` describes the work, and
  // `done` will be recorded at its end. `done` outlives the watchdog. It may be
  // reused once its work is done, or for work that waits for that work.
  void Begin(std::string name, const Event* done);
  // Call once `done` has been recorded for its latest work. Until then it is
  // not looked at, and the work counts as unfinished.
  void Given(const Event* done);

  // The first error found; OK if there is none.
  absl::Status status() const;
  // Looks now, as the thread does at each interval. Returns the first error, of
  // which the caller aborts. The current device must be `device`.
  absl::Status Look();

  // Aborts the communicators, as if `reason` had been found.
  void Abort(const absl::Status& reason);

 private:
  DeviceWatch(std::vector<Communicator*> communicators,
              const volatile Finding* finding, const Options& options);

  struct Work {
    std::string name;
    const Event* done;
    absl::Time begun;
    bool given = false;
  };

  void Run();

  const std::vector<Communicator*> communicators_;
  const volatile Finding* const finding_;
  const Options options_;
  const std::unique_ptr<Sleeper> sleeper_;
  mutable Mutex mutex_;
  std::deque<Work> works_ ABSL_GUARDED_BY(mutex_);
  std::string last_ ABSL_GUARDED_BY(mutex_);  // the latest work's name
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_WATCH_H_
