#include "trainer_shim/cuda/device_batch.h"

#include <vector>

#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"

namespace ballast {
namespace {

absl::Status Copy(const uint8_t* device, uint64_t bytes, cudaStream_t stream,
                  std::vector<uint8_t>* host) {
  host->resize(bytes);
  if (bytes == 0) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(host->data(), device, bytes,
                                    cudaMemcpyDeviceToHost, stream),
                    "copy of a batch to the host");
}

}  // namespace

PackedBatch WithoutTensors(const DeviceBatch& batch) {
  PackedBatch host;
  static_cast<BatchInfo&>(host) = batch;
  host.tensors.clear();
  return host;
}

absl::StatusOr<PackedBatch> CopyToHost(const DeviceBatch& batch,
                                       cudaStream_t stream) {
  PackedBatch host;
  static_cast<BatchInfo&>(host) = batch;
  BALLAST_RETURN_IF_ERROR(
      Copy(batch.memory.packed, batch.packed_bytes, stream, &host.packed));
  BALLAST_RETURN_IF_ERROR(
      Copy(batch.memory.lists, batch.list_bytes, stream, &host.lists));
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaStreamSynchronize(stream), "waiting for a batch"));
  for (size_t i = 0; i < host.samples.size(); ++i) {
    host.samples[i].placeholder = batch.placeholders[i] != 0;
  }
  return host;
}

}  // namespace ballast
