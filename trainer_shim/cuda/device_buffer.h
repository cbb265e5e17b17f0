#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_BUFFER_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_BUFFER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

namespace ballast {

// Uninitialised GPU memory of a fixed size, which may be 0; begins at a
// multiple of 256. Movable. Thread-compatible.
class DeviceBuffer {
 public:
  // Allocates on the calling thread's current device. Waits for the device.
  // Errors: as CudaStatus; RESOURCE_EXHAUSTED names the size.
  static absl::StatusOr<DeviceBuffer> Create(uint64_t size);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { Swap(&other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer moved(std::move(other));
    Swap(&moved);
    return *this;
  }
  // Waits until the device has done all work enqueued before.
  ~DeviceBuffer() = default;

  uint64_t size() const { return size_; }
  // A device address: the host must not read or write it.
  uint8_t* data() const { return data_.get(); }

 private:
  void Swap(DeviceBuffer* other) {
    data_.swap(other->data_);
    std::swap(size_, other->size_);
  }
  struct Free {
    void operator()(uint8_t* data) const;
  };
  std::unique_ptr<uint8_t, Free> data_;
  uint64_t size_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_BUFFER_H_
