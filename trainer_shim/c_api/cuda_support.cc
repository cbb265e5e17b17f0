#include "trainer_shim/c_api/cuda_support.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <utility>

#include "common/status_macros.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/cuda/in_process_device_communicator.h"
#include "trainer_shim/cuda/nccl_communicator.h"

namespace ballast {
namespace {

NcclOptions GetOptions(const NcclEndOptions& options) {
  NcclOptions nccl;
  nccl.max_ctas = options.max_ctas;
  return nccl;
}

}  // namespace

bool HasCuda() { return true; }

absl::StatusOr<std::string> NcclId() { return MakeNcclId(); }

absl::StatusOr<std::unique_ptr<Communicator>> NcclEndOfId(
    const std::string& id, uint32_t rank, uint32_t size,
    const NcclEndOptions& options) {
  const CurrentDevice current(options.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  return CreateNcclCommunicator(id, rank, size, GetOptions(options));
}

absl::StatusOr<std::unique_ptr<Communicator>> MeetNcclEnd(
    const std::vector<std::unique_ptr<LoaderClient>>& servers,
    const std::string& group, uint32_t rank, uint32_t size,
    absl::Duration timeout, const NcclEndOptions& options,
    const std::string& run) {
  const CurrentDevice current(options.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  return MeetNcclCommunicator(MeetingServer(servers), group, rank, size,
                              timeout, GetOptions(options), run);
}

absl::StatusOr<std::unique_ptr<Communicator>> BorrowNcclEnd(
    void* trainers, const NcclEndOptions& options) {
  const CurrentDevice current(options.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  return BorrowNcclCommunicator(static_cast<ncclComm_t>(trainers),
                                GetOptions(options));
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> CudaGroup(
    uint32_t size) {
  return InProcessDeviceGroup(size);
}

absl::StatusOr<std::unique_ptr<RankShim>> MakeCudaShim(ShimOptions options) {
  CudaTrainerShim::Options shim;
  static_cast<RankShim::Options&>(shim) = std::move(options.shim);
  shim.device = options.device;
  shim.pixel_type = options.pixel_type;
  shim.normalisation = options.normalisation;
  shim.overlap = options.overlap;
  shim.timeout = options.timeout;
  const CurrentDevice current(options.device);
  // Also without such a device, since the error aborts the communicators.
  absl::StatusOr<std::unique_ptr<RankShim>> made =
      CudaTrainerShim::Create(std::move(shim));
  BALLAST_RETURN_IF_ERROR(current.status());
  return made;
}

}  // namespace ballast
