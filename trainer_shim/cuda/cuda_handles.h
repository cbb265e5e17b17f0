#ifndef BALLAST_TRAINER_SHIM_CUDA_CUDA_HANDLES_H_
#define BALLAST_TRAINER_SHIM_CUDA_CUDA_HANDLES_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace ballast {

// CUDA's events, streams and pinned memory as values that clean up after
// themselves. All movable; a default one is empty. Errors: as CudaStatus.

// An event. Recording it anew forgets what was recorded before.
class Event {
 public:
  static absl::StatusOr<Event> Create();  // without timing, which is cheaper
  static absl::StatusOr<Event> CreateTimed();
  Event() = default;

  absl::Status Record(cudaStream_t stream) const;
  // Blocks until what was recorded is done; at once where nothing was. Sleeps
  // meanwhile, where CUDA's default is to spin: a processor of the node that a
  // thread burns by waiting is one that decodes no images.
  absl::Status Wait() const;
  // Whether what was recorded is done; true where nothing was. Never blocks.
  absl::StatusOr<bool> Done() const;
  cudaEvent_t get() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const;
  };
  static absl::StatusOr<Event> CreateWith(unsigned flags);

  std::unique_ptr<CUevent_st, Destroy> event_;
};

// How long it was on the device from what `begin` to what `end` recorded, to
// half a microsecond. Both are timed, of one device, recorded and done; else
// INTERNAL. Never blocks.
absl::StatusOr<absl::Duration> TimeBetween(const Event& begin,
                                           const Event& end);

// Work that `stream` is given from now on waits for `event`.
absl::Status StreamWait(cudaStream_t stream, cudaEvent_t event);

// A stream of the current device that does not wait for the default stream.
class CudaStream {
 public:
  static absl::StatusOr<CudaStream> Create();
  CudaStream() = default;

  absl::Status Synchronize() const;
  cudaStream_t get() const { return stream_.get(); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const;
  };
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

// Device memory that is taken and given back in the order of a stream's work.
// Unlike cudaFree this waits for nothing, and waiting for a device that itself
// waits for a peer may never end. Not usable after its stream is gone, which
// must outlive it.
class StreamBuffer {
 public:
  StreamBuffer() = default;
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;
  ~StreamBuffer();

  // Makes it hold at least `size` bytes for the work that `stream` is given
  // from now on; what it held is lost when it grows, to twice as much as asked
  // for. What work on other streams reads of it must be done, or waited for by
  // `stream`. Always the same stream. Errors: as CudaStatus.
  absl::Status Reserve(uint64_t size, cudaStream_t stream);

  uint64_t size() const { return size_; }
  // A device address, at a multiple of 256.
  uint8_t* data() const { return data_; }

  // Gives the memory back, in the order of its stream's work. Waits for
  // nothing.
  void Free();

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  cudaStream_t stream_ = nullptr;
};

// Page-locked host memory, which devices copy from at full speed and without
// the host's help, and which they can also write to.
class PinnedBuffer {
 public:
  static absl::StatusOr<PinnedBuffer> Create(uint64_t size);
  PinnedBuffer() = default;

  // Makes it hold at least `size` bytes; what it held is lost when it grows, to
  // twice as much as asked for. What it had before stays allocated as long as
  // the buffer, since giving pinned memory back waits for the device.
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

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_CUDA_HANDLES_H_
