#include "trainer_shim/cuda/device_buffer.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"

namespace ballast {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(uint64_t size) {
  DeviceBuffer buffer;
  if (size == 0) return buffer;
  void* data = nullptr;
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaMalloc(&data, size),
                 absl::StrCat("allocation of ", size, " bytes on the device")));
  buffer.data_.reset(static_cast<uint8_t*>(data));
  buffer.size_ = size;
  return buffer;
}

void DeviceBuffer::Free::operator()(uint8_t* data) const {
  const absl::Status status =
      CudaStatus(cudaFree(data), "release of device memory");
  // A destructor cannot return an error. The call that met the device's error
  // first has reported it.
  if (!status.ok()) LogError(status.message());
}

}  // namespace ballast
