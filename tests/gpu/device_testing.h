#ifndef BALLAST_TESTS_GPU_DEVICE_TESTING_H_
#define BALLAST_TESTS_GPU_DEVICE_TESTING_H_

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer_shim/cuda/cuda_handles.h"

namespace ballast {

// For tests and benchmarks on a GPU: a failure ends the process with its
// reason, so that a machine without a GPU can only fail.
inline void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
inline void OrDie(cudaError_t error, absl::string_view what) {
  OrDie(CudaStatus(error, what));
}
template <typename T>
T OrDie(absl::StatusOr<T> value) {
  OrDie(value.status());
  return *std::move(value);
}

// Allocates `count` values of T on the device, each byte set to `fill`.
template <typename T>
DeviceBuffer Filled(uint64_t count, int fill) {
  DeviceBuffer buffer = OrDie(DeviceBuffer::Create(count * sizeof(T)));
  OrDie(cudaMemset(buffer.data(), fill, buffer.size()), "memset");
  return buffer;
}

template <typename T>
DeviceBuffer ToDevice(const std::vector<T>& host) {
  DeviceBuffer buffer = OrDie(DeviceBuffer::Create(host.size() * sizeof(T)));
  OrDie(cudaMemcpy(buffer.data(), host.data(), buffer.size(),
                   cudaMemcpyHostToDevice),
        "copy to the device");
  return buffer;
}

// Copies values [first, first + count) of a buffer of T. Waits for the device.
template <typename T>
std::vector<T> ToHost(const DeviceBuffer& buffer, uint64_t first,
                      uint64_t count) {
  std::vector<T> host(count);
  OrDie(cudaDeviceSynchronize(), "wait for the device");
  OrDie(cudaMemcpy(host.data(), buffer.data() + first * sizeof(T),
                   count * sizeof(T), cudaMemcpyDeviceToHost),
        "copy to the host");
  return host;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_DEVICE_TESTING_H_
