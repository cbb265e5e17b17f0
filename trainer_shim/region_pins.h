#ifndef BALLAST_TRAINER_SHIM_REGION_PINS_H_
#define BALLAST_TRAINER_SHIM_REGION_PINS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/buffer_pool.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace ballast {

// The seam to pinning memory for a device. Implementations: CudaPinner
// (cuda/cuda_handles.h), a fake. Thread-safe; both calls may wait for the
// device.
class MemoryPinner {
 public:
  virtual ~MemoryPinner() = default;
  // Lets devices copy from `region`.
  virtual absl::Status Pin(const MemoryRegion& region) = 0;
  // Undoes Pin. No device may be copying from the region.
  virtual absl::Status Unpin(const MemoryRegion& region) = 0;
};

// Regions that hold blocks. Each is pinned at its first block, so that devices
// copy blocks from where the server wrote them. A region is unpinned and
// released once nothing else holds it: the connection to its server has ended,
// and so has every block that was in it. Until then its memory stays in use,
// also if the server is dead. A thread looks for such regions at each
// `interval`. A region that cannot be pinned is remembered as such and logged
// once.
//
// A block must be kept until devices have read it. Thread-safe.
class RegionPins {
 public:
  struct Options {
    absl::Duration interval = absl::Milliseconds(200);
    Clock* clock = Clock::Real();  // outlives this
  };

  // `pinner` is not owned and outlives the pins. Errors: as StartThread.
  static absl::StatusOr<std::unique_ptr<RegionPins>> Create(
      MemoryPinner* pinner, const Options& options);
  // Joins the thread and unpins every region; before this, all device copies
  // from the regions must have ended.
  ~RegionPins();
  RegionPins(const RegionPins&) = delete;
  RegionPins& operator=(const RegionPins&) = delete;

  // Pins `region` if needed and returns whether devices may copy from it; false
  // if null. The first call for a region takes about 50 ms per GiB.
  bool Pin(const std::shared_ptr<const MemoryRegion>& region);

  // Number of regions that are kept, pinned or not.
  size_t regions() const;

 private:
  RegionPins(MemoryPinner* pinner, const Options& options);

  enum class State { kPinned, kRefused, kChanging };

  void Run();
  // Unpins and releases the regions that nothing else holds.
  void LetGo();
  void Unpin(const MemoryRegion& region);

  MemoryPinner* const pinner_;
  const absl::Duration interval_;
  const std::unique_ptr<Sleeper> sleeper_;
  mutable Mutex mutex_;
  CondVar changed_;
  // kChanging: being pinned or unpinned, without the lock.
  std::map<std::shared_ptr<const MemoryRegion>, State> regions_
      ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses all the others
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_REGION_PINS_H_
