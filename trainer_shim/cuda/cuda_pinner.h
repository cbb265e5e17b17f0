#ifndef BALLAST_TRAINER_SHIM_CUDA_CUDA_PINNER_H_
#define BALLAST_TRAINER_SHIM_CUDA_CUDA_PINNER_H_

#include "absl/status/status.h"
#include "client/memory_region.h"
#include "trainer_shim/region_pins.h"

namespace ballast {

// Pins memory with cudaHostRegister, for all devices. Errors: as CudaStatus,
// naming the size.
class CudaPinner final : public MemoryPinner {
 public:
  // Calls CUDA with `device` current, so that no other device gets a context.
  explicit CudaPinner(int device) : device_(device) {}

  absl::Status Pin(const MemoryRegion& region) override;
  absl::Status Unpin(const MemoryRegion& region) override;

 private:
  const int device_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_CUDA_PINNER_H_
