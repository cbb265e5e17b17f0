#ifndef BALLAST_TRAINER_SHIM_CUDA_PINNED_REGIONS_H_
#define BALLAST_TRAINER_SHIM_CUDA_PINNED_REGIONS_H_

#include <map>
#include <memory>

#include "client/memory_region.h"

namespace ballast {

// Regions that blocks lie in, pinned when the first block of each comes, so
// that devices copy blocks from where the server wrote them. Holds and pins
// them until it is destroyed, by when no device copies from them any more. A
// region that cannot be pinned is remembered as such, with a line in the log.
// Thread-compatible.
class PinnedRegions {
 public:
  PinnedRegions() = default;
  ~PinnedRegions();
  PinnedRegions(const PinnedRegions&) = delete;
  PinnedRegions& operator=(const PinnedRegions&) = delete;

  // Whether devices may copy from `region`, which may be null (they may not).
  // Takes about 50 ms a GiB the first time.
  bool Pin(const std::shared_ptr<const MemoryRegion>& region);

 private:
  // Whether each is pinned.
  std::map<std::shared_ptr<const MemoryRegion>, bool> regions_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_PINNED_REGIONS_H_
