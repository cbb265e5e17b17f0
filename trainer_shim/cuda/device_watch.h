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
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/staging_kernels.h"

namespace ballast {

// A finding as a status: OK or DATA_LOSS. Pure. `batch` names the step and
// micro-batch.
absl::Status StatusOf(const Finding& finding, const std::string& batch);

// Watches, in a thread of its own, work that a device has been given and that
// may never end by itself: an exchange whose peer is gone waits on the device
// without end, and the host would wait for it. The first thing that goes wrong
// aborts the communicators, which ends that work. Thread-safe.
class DeviceWatch {
 public:
  struct Options {
    int device = 0;
    absl::Duration timeout = absl::Minutes(10);
    absl::Duration interval = absl::Milliseconds(20);  // between looks
    Clock* clock = Clock::Real();                      // outlives the watch
    // Called at each look, on a thread whose current device is `device`. Waits
    // for nobody.
    std::function<void()> on_look;
  };

  // Neither the communicators, of which any may be null, nor `finding`, pinned
  // memory that the device writes to, are owned; all outlive the watch.
  DeviceWatch(std::vector<Communicator*> communicators,
              const volatile Finding* finding, const Options& options);
  ~DeviceWatch();  // joins
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // The device is about to be given a batch's work, after all that it was given
  // before; `done` will record its end and `batch` names it. `done` outlives
  // the watch and may be used again for later work.
  void Begin(std::string batch, const Event* done);
  // `done` has been recorded for the latest batch.
  void Given();

  // The first thing that has gone wrong; OK where nothing has.
  absl::Status status() const;

  // As if `reason` had been found: aborts the communicators.
  void Abort(const absl::Status& reason);

 private:
  struct Work {
    std::string name;
    const Event* done;
    absl::Time begun;
    bool given = false;
  };

  void Run();
  absl::Status Look();

  const std::vector<Communicator*> communicators_;
  const volatile Finding* const finding_;
  const Options options_;
  const std::unique_ptr<Sleeper> sleeper_;
  mutable Mutex mutex_;
  std::deque<Work> works_ ABSL_GUARDED_BY(mutex_);
  std::string last_ ABSL_GUARDED_BY(mutex_);  // the latest batch's name
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_WATCH_H_
