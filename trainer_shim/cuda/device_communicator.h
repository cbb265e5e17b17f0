#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_COMMUNICATOR_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace ballast {

// Device memory that goes to one other rank of the group, or is filled by one.
struct DeviceSlice {
  uint32_t peer = 0;
  uint8_t* data = nullptr;
  uint64_t bytes = 0;
};

// The seam between a rank's GPU and those of the other data-parallel ranks of
// its module, or of its tensor peers: NCCL, or threads of one process
// (in_process_device_communicator.h). The twin of Communicator for device
// memory. One object is one rank's end; all calls but Check and Abort are made
// from one thread.
class DeviceCommunicator {
 public:
  // Leaves the group, and may wait for the other ranks to leave it too. Who
  // cannot count on them calls Abort before.
  virtual ~DeviceCommunicator() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;  // ranks of the group

  // Gives `stream`, of the calling thread's current device, the work of moving
  // every send slice to its peer and filling every receive slice; does not wait
  // for the device. The k-th slice that rank a sends to b is the k-th that b
  // receives from a, and both have the same length. A rank sends nothing to
  // itself; slices of no bytes are passed over on both sides. Every rank of the
  // group makes the same calls in the same order, though one that has nothing
  // to move with anyone may have nothing to do in it.
  //
  // The slices must stay until the device has done the work. Errors, final for
  // this end: INVALID_ARGUMENT (a peer that does not exist), what Abort was
  // given, INTERNAL and UNAVAILABLE (NCCL's errors).
  virtual absl::Status AllToAllV(absl::Span<const DeviceSlice> sends,
                                 absl::Span<const DeviceSlice> receives,
                                 cudaStream_t stream) = 0;

  // Likewise the work of copying `bytes` bytes at `data` of rank `root` to
  // `data` of every other rank. All ranks call it with the same root and size.
  // Errors: as AllToAllV; INVALID_ARGUMENT also for a root that does not exist.
  virtual absl::Status Broadcast(uint32_t root, uint8_t* data, uint64_t bytes,
                                 cudaStream_t stream) = 0;

  // What has gone wrong since, on the device or with a peer; OK where nothing
  // has. Never waits. From any thread.
  virtual absl::Status Check() = 0;

  // Ends the work that has been given to the device, so that nobody waits for
  // it for ever, and every later AllToAllV with `reason` (the first one given
  // counts), which must not be OK. What the receive slices hold is undefined.
  // From any thread.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_COMMUNICATOR_H_
