#ifndef BALLAST_TRAINER_SHIM_C_API_CUDA_SUPPORT_H_
#define BALLAST_TRAINER_SHIM_C_API_CUDA_SUPPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/loader_client.h"
#include "trainer_shim/c_api/checkpoint.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/rank_shim.h"

namespace ballast {

// The C interface's access to GPUs. In a build without CUDA, HasCuda is false
// and every other function returns UNIMPLEMENTED (no_cuda_support.cc). No
// function changes the calling thread's current device.
bool HasCuda();

struct NcclEndOptions {
  int device = 0;
  int max_ctas = 0;
};

absl::StatusOr<std::string> NcclId();
absl::StatusOr<std::unique_ptr<Communicator>> NcclEndOfId(
    const std::string& id, uint32_t rank, uint32_t size,
    const NcclEndOptions& options);
// Rendezvous through the MeetingServer of `servers`; `run` may be empty.
absl::StatusOr<std::unique_ptr<Communicator>> MeetNcclEnd(
    const std::vector<std::unique_ptr<LoaderClient>>& servers,
    const std::string& group, uint32_t rank, uint32_t size,
    absl::Duration timeout, const NcclEndOptions& options,
    const std::string& run);
// `trainers` is an ncclComm_t.
absl::StatusOr<std::unique_ptr<Communicator>> BorrowNcclEnd(
    void* trainers, const NcclEndOptions& options);

// As InProcessDeviceGroup.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> CudaGroup(
    uint32_t size);

// Errors: as CudaTrainerShim::Create.
absl::StatusOr<std::unique_ptr<RankShim>> MakeCudaShim(ShimOptions options);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_C_API_CUDA_SUPPORT_H_
