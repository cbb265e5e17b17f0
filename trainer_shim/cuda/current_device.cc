#include "trainer_shim/cuda/current_device.h"

#include <cuda_runtime_api.h>

#include "trainer_shim/cuda/cuda_status.h"

namespace ballast {

CurrentDevice::CurrentDevice(int device) {
  status_ = CudaStatus(cudaGetDevice(&before_), "asking for the device");
  if (!status_.ok() || device == before_) return;
  status_ = CudaStatus(cudaSetDevice(device), "choosing the device");
  changed_ = status_.ok();
}

CurrentDevice::~CurrentDevice() {
  if (changed_) cudaSetDevice(before_);
}

}  // namespace ballast
