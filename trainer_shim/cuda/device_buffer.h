#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_BUFFER_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_BUFFER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

namespace ballast {

// Uninitialised bytes of a fixed size in a GPU's memory, or none at all; they
// begin at a multiple of 256. Movable. Thread-compatible.
class DeviceBuffer {
 public:
  // On the calling thread's current device. Waits for it.
  // Errors: as CudaStatus; RESOURCE_EXHAUSTED names the size.
  static absl::StatusOr<DeviceBuffer> Create(uint64_t size);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { Swap(&other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer moved(std::move(other));
    Swap(&moved);
    return *this;
  }
  // Waits until the device has done all work that it was given before.
  ~DeviceBuffer() = default;

  uint64_t size() const { return size_; }
  // A device address: not to be read or written by the host.
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
