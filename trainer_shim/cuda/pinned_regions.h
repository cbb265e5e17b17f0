#ifndef BALLAST_TRAINER_SHIM_CUDA_PINNED_REGIONS_H_
#define BALLAST_TRAINER_SHIM_CUDA_PINNED_REGIONS_H_

#include <map>
#include <memory>

#include "client/memory_region.h"

namespace ballast {

// Memory regions that hold blocks. Each is pinned at its first block, so that
// devices copy blocks from where the server wrote them, and stays held and
// pinned until this is destroyed; by then no device may copy from it. A region
// that cannot be pinned is remembered as such and logged once.
// Thread-compatible.
class PinnedRegions {
 public:
  PinnedRegions() = default;
  ~PinnedRegions();
  PinnedRegions(const PinnedRegions&) = delete;
  PinnedRegions& operator=(const PinnedRegions&) = delete;

  // Pins `region` if needed and returns whether devices may copy from it; false
  // if null. The first call for a region takes about 50 ms per GiB.
  bool Pin(const std::shared_ptr<const MemoryRegion>& region);

 private:
  // Whether each is pinned.
  std::map<std::shared_ptr<const MemoryRegion>, bool> regions_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_PINNED_REGIONS_H_
