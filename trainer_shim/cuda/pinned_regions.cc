#include "trainer_shim/cuda/pinned_regions.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "trainer_shim/cuda/cuda_status.h"

namespace ballast {
namespace {

// CUDA takes a non-const pointer; a flag marks this memory as read-only.
void* AddressOf(const MemoryRegion& region) {
  return const_cast<uint8_t*>(region.bytes().data());
}

}  // namespace

PinnedRegions::~PinnedRegions() {
  for (const auto& [region, pinned] : regions_) {
    if (!pinned) continue;
    const absl::Status status =
        CudaStatus(cudaHostUnregister(AddressOf(*region)), "unpinning memory");
    if (!status.ok()) LogError(status.message());
  }
}

bool PinnedRegions::Pin(const std::shared_ptr<const MemoryRegion>& region) {
  if (region == nullptr) return false;
  const auto [entry, is_new] = regions_.try_emplace(region, false);
  if (!is_new) return entry->second;
  const unsigned flags = cudaHostRegisterPortable |
                         (region->read_only() ? cudaHostRegisterReadOnly : 0);
  const absl::Status status = CudaStatus(
      cudaHostRegister(AddressOf(*region), region->bytes().size(), flags),
      absl::StrCat("pinning the ", region->bytes().size(),
                   " bytes that blocks lie in"));
  entry->second = status.ok();
  if (!status.ok()) {
    LogInfo(absl::StrCat(status.message(),
                         "; blocks are copied to pinned memory instead"));
    cudaGetLastError();  // handled here: clear it
  }
  return entry->second;
}

}  // namespace ballast
