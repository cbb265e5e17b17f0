#include "trainer_shim/cuda/cuda_pinner.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"
#include "trainer_shim/cuda/current_device.h"

namespace ballast {
namespace {

// CUDA takes a non-const pointer; a flag marks this memory as read-only.
void* AddressOf(const MemoryRegion& region) {
  return const_cast<uint8_t*>(region.bytes().data());
}

}  // namespace

absl::Status CudaPinner::Pin(const MemoryRegion& region) {
  const CurrentDevice current(device_);
  BALLAST_RETURN_IF_ERROR(current.status());
  const unsigned flags = cudaHostRegisterPortable |
                         (region.read_only() ? cudaHostRegisterReadOnly : 0);
  const absl::Status status = CudaStatus(
      cudaHostRegister(AddressOf(region), region.bytes().size(), flags),
      absl::StrCat("pinning the ", region.bytes().size(),
                   " bytes that blocks lie in"));
  if (!status.ok()) cudaGetLastError();  // the caller handles it: clear it
  return status;
}

absl::Status CudaPinner::Unpin(const MemoryRegion& region) {
  const CurrentDevice current(device_);
  BALLAST_RETURN_IF_ERROR(current.status());
  return CudaStatus(cudaHostUnregister(AddressOf(region)), "unpinning memory");
}

}  // namespace ballast
