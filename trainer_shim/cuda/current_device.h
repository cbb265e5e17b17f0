#ifndef BALLAST_TRAINER_SHIM_CUDA_CURRENT_DEVICE_H_
#define BALLAST_TRAINER_SHIM_CUDA_CURRENT_DEVICE_H_

#include "absl/status/status.h"

namespace ballast {

// Makes a device the calling thread's current one for its lifetime, and then
// restores the previous one.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  // Errors: as CudaStatus.
  const absl::Status& status() const { return status_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  absl::Status status_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_CURRENT_DEVICE_H_
