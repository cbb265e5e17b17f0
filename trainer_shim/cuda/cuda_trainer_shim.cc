#include "trainer_shim/cuda/cuda_trainer_shim.h"

#include <utility>

#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_handles.h"

namespace ballast {

CudaTrainerShim::CudaTrainerShim(Options options)
    : RankShim(std::move(options), std::make_unique<CudaBatchMaker>(options)) {}

absl::StatusOr<std::unique_ptr<CudaTrainerShim>> CudaTrainerShim::Create(
    Options options) {
  auto clients = GetClients(options.servers);
  const int device = options.device;
  std::unique_ptr<CudaTrainerShim> shim(
      new CudaTrainerShim(std::move(options)));
  if (clients.ok()) {
    const absl::Status status =
        CudaStatus(cudaSetDevice(device), "choosing the device");
    if (!status.ok()) clients = status;
  }
  BALLAST_RETURN_IF_ERROR(shim->Open(std::move(clients)));
  return shim;
}

absl::StatusOr<std::unique_ptr<CudaTrainerShim>> CudaTrainerShim::Create(
    Options options, std::vector<std::unique_ptr<LoaderClient>> clients) {
  const absl::Status status =
      CudaStatus(cudaSetDevice(options.device), "choosing the device");
  std::unique_ptr<CudaTrainerShim> shim(
      new CudaTrainerShim(std::move(options)));
  absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> given =
      std::move(clients);
  if (!status.ok()) given = status;
  BALLAST_RETURN_IF_ERROR(shim->Open(std::move(given)));
  return shim;
}

absl::StatusOr<BatchRef<DeviceBatch>> CudaTrainerShim::Next(
    cudaStream_t stream) {
  return CastBatch<DeviceBatch>(RankShim::Next(stream));
}

absl::StatusOr<BatchRef<DeviceBatch>> CudaTrainerShim::ReceiveFromTensorPeer(
    cudaStream_t stream) {
  return CastBatch<DeviceBatch>(RankShim::ReceiveFromTensorPeer(stream));
}

}  // namespace ballast
