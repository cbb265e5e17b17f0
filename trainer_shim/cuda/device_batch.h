#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/tensor_table.h"

namespace ballast {

// A rank's packed batch of one micro-batch in GPU memory; PackedBatch is its
// counterpart on the host. BatchInfo::tensors lists its tensors, which are
// dense, row-major, and begin at multiples of 256 bytes.
// PackedSample::placeholder is not set: see `placeholders`.
struct DeviceBatch : BatchInfo {
  // The device address of a tensor; null if the batch has none of this name.
  template <typename T>
  const T* Get(absl::string_view name) const {
    const BatchTensor* tensor = FindTensor(*this, name);
    if (tensor == nullptr) return nullptr;
    const bool is_packed = tensor->row->memory == Memory::kPacked;
    return reinterpret_cast<const T*>(
        (is_packed ? memory.packed : memory.lists) + tensor->offset);
  }

  TensorMemory memory;
  // Host memory, [n]: 1 if the sample could not be read and a placeholder of
  // its size replaces it. Valid once the device has packed the batch.
  const uint8_t* placeholders = nullptr;
};

// The batch without its tensors.
PackedBatch WithoutTensors(const DeviceBatch& batch);

// Copies the batch to host memory, for tests and tools. Waits for `stream`,
// which must wait for the batch. Errors: as CudaStatus.
absl::StatusOr<PackedBatch> CopyToHost(const DeviceBatch& batch,
                                       cudaStream_t stream);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_
