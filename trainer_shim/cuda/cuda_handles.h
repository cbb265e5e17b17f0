#ifndef BALLAST_TRAINER_SHIM_CUDA_CUDA_HANDLES_H_
#define BALLAST_TRAINER_SHIM_CUDA_CUDA_HANDLES_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/buffer_pool.h"
#include "trainer_shim/region_pins.h"

namespace ballast {

// The only place where CUDA's errors become statuses. `what` names the failed
// operation ("copy of 12 bytes to the device").
//
// Codes: RESOURCE_EXHAUSTED (the device's or the pinned memory is used up),
// FAILED_PRECONDITION (no device, no driver, or one too old for the runtime),
// INTERNAL (all else). After INTERNAL the device's context may be lost: most of
// CUDA's errors stick, and every later call reports the same.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

// Captures of CUDA graphs. While a thread of the trainer captures in CUDA's
// default mode, `global`, unsafe calls of any thread (asking for an event,
// pinning or freeing memory) fail, and the capture with them. Work of the shim
// is in no graph, so its calls are made in the mode `relaxed`, which allows
// them. CurrentDevice and UseDevice set that mode: every call of CUDA is made
// under a CurrentDevice on the trainer's threads, or after UseDevice on the
// shim's own.

// Makes a device the calling thread's current one and its capture mode relaxed
// for its lifetime, and then restores both.
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
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // the other one
  bool relaxed_ = false;
  absl::Status status_;
};

// For a thread of the shim: makes `device` its current one and its capture mode
// relaxed until it ends. Errors: as CudaStatus.
absl::Status UseDevice(int device);

// Whether `stream` takes part in a capture, also a failed one that has not been
// ended, or cannot be used before a capture ends (the legacy default stream).
// Work for such a stream would become part of the graph. The device of `stream`
// must be current.
bool IsCapturing(cudaStream_t stream);

// FAILED_PRECONDITION if `stream` IsCapturing.
absl::Status CheckNotCapturing(cudaStream_t stream);

// Loads kernels, given by the addresses of their host functions, onto the
// current device; null is skipped. Otherwise a kernel's first launch loads it,
// which may wait for all work on the device, and forever if that work waits for
// a peer. Errors: as CudaStatus.
absl::Status LoadKernels(std::initializer_list<const void*> kernels);

// The shape of a launch: blocks, threads of each, and bytes of shared memory.
struct Grid {
  uint64_t blocks = 1;
  uint32_t threads = 1;
  uint64_t shared = 0;
};

absl::Status LaunchKernel(const void* kernel, const Grid& grid,
                          cudaStream_t stream, void** arguments,
                          absl::string_view what);

// Enqueues a kernel of .cu code. CUDA's <<<>>> returns no error but the
// thread's last one, which may be the trainer's. `what` names the launch.
// Errors: as CudaStatus.
template <typename... Parameters>
absl::Status EnqueueKernel(absl::string_view what,
                           void (*kernel)(Parameters...), const Grid& grid,
                           cudaStream_t stream,
                           std::type_identity_t<Parameters>... arguments) {
  void* pointers[] = {&arguments...};
  return LaunchKernel(reinterpret_cast<const void*>(kernel), grid, stream,
                      pointers, what);
}

// RAII types for CUDA's events, streams and memory. All are movable; a
// default-constructed one is empty. Errors: as CudaStatus.

// An event. Recording it again replaces the earlier record.
class Event {
 public:
  static absl::StatusOr<Event> Create();  // without timing, which is cheaper
  static absl::StatusOr<Event> CreateTimed();
  Event() = default;

  absl::Status Record(cudaStream_t stream) const;
  // Blocks until the recorded work is done; returns at once if nothing was
  // recorded. Sleeps instead of spinning, CUDA's default: a core that spins
  // decodes no images.
  absl::Status Wait() const;
  // Whether the recorded work is done; true if nothing was recorded. Never
  // blocks.
  absl::StatusOr<bool> Done() const;
  cudaEvent_t get() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const;
  };
  static absl::StatusOr<Event> CreateWith(unsigned flags);

  std::unique_ptr<CUevent_st, Destroy> event_;
};

// Device time between the records of `begin` and `end`, to half a microsecond.
// Both must be timed, on one device, recorded and done; else INTERNAL. Never
// blocks.
absl::StatusOr<absl::Duration> TimeBetween(const Event& begin,
                                           const Event& end);

// Makes work enqueued on `stream` from now on wait for `event`.
absl::Status StreamWait(cudaStream_t stream, cudaEvent_t event);

// A stream of the current device that does not wait for the default stream.
class CudaStream {
 public:
  static absl::StatusOr<CudaStream> Create();
  // With the device's highest priority: its kernels are the first to get
  // multiprocessors that become free.
  static absl::StatusOr<CudaStream> CreateUrgent();
  CudaStream() = default;

  absl::Status Synchronize() const;
  cudaStream_t get() const { return stream_.get(); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const;
  };
  static absl::StatusOr<CudaStream> CreateWith(int priority);

  std::unique_ptr<CUstream_st, Destroy> stream_;
};

// Device memory that is allocated and freed in stream order. Unlike cudaFree
// this never waits: a wait for a device that itself waits for a peer may never
// end. Its stream must outlive it.
class StreamBuffer {
 public:
  StreamBuffer() = default;
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;
  ~StreamBuffer();

  // Makes it hold at least `size` bytes for work enqueued on `stream` from now
  // on. If it must grow, it grows to twice `size` and loses its contents. Work
  // on other streams that reads it must be done, or `stream` must wait for it.
  // Must always be given the same stream. Errors: as CudaStatus.
  absl::Status Reserve(uint64_t size, cudaStream_t stream);

  uint64_t size() const { return size_; }
  // A device address, a multiple of 256.
  uint8_t* data() const { return data_; }

  // Frees the memory in stream order. Never waits.
  void Free();

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  cudaStream_t stream_ = nullptr;
};

// Page-locked host memory: devices copy from it at full speed without the
// host's help, and can write to it.
class PinnedBuffer {
 public:
  static absl::StatusOr<PinnedBuffer> Create(uint64_t size);
  PinnedBuffer() = default;

  // Makes it hold at least `size` bytes. If it must grow, it grows to twice
  // `size` and loses its contents. The old memory stays allocated as long as
  // the buffer, since freeing pinned memory waits for the device.
  absl::Status Reserve(uint64_t size);

  uint64_t size() const { return size_; }
  uint8_t* data() const { return data_.get(); }
  absl::Span<uint8_t> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(uint8_t* data) const;
  };
  std::unique_ptr<uint8_t, Free> data_;
  uint64_t size_ = 0;
  std::vector<std::unique_ptr<uint8_t, Free>> outgrown_;
};

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

// Pins memory with cudaHostRegister, for all devices. Errors: as CudaStatus,
// naming the size.
class CudaPinner final : public MemoryPinner {
 public:
  // Calls CUDA with `device` current, so that no other device gets a context.
  explicit CudaPinner(int device) : device_(device) {}

  absl::Status Pin(const MemoryRegion& region) override;
  absl::Status Unpin(const MemoryRegion& region) override;

 private:
  const int device_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_CUDA_HANDLES_H_
