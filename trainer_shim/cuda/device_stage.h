#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_STAGE_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_STAGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/device_communicator.h"
#include "trainer_shim/cuda/patchify_cuda.h"
#include "trainer_shim/cuda/batch_stager.h"
#include "trainer_shim/cuda/staging_kernels.h"
#include "trainer_shim/cuda/staging_timer.h"
#include "trainer_shim/job_shape.h"

namespace ballast {

// The device's part of one window: copies the block in, exchanges, checks and
// packs, all as work of one stream. Holds the device memory: one landing
// buffer, and room for the batches of two windows, so that one is made while
// the trainer uses the other. Buffers grow to twice the largest window seen,
// and are kept. Thread-compatible, and used on threads whose current device is
// its own.
class DeviceStage {
 public:
  static constexpr int kSlots = 2;

  // `communicator` is not owned; it may be null where `shape` exchanges
  // nothing. `finding` is pinned memory. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<DeviceStage>> Create(
      const JobShape& shape, PixelType pixel_type, Normalisation normalisation,
      DeviceCommunicator* communicator, Finding* finding);

  // Gives the stream all the work of `window`, whose batch comes to lie in slot
  // `slot` (0 or 1) and gets its pointers. What is in the slot is overwritten
  // once `vacant` is done; an event that was never recorded is. Records
  // window->packed, and window->timer's phases: copying in, without what came
  // before; the exchange with the comparing of headers, where `shape` has one;
  // checking records and packing. Does not wait for the device.
  // A window without a block gets its pointers, and what the host knows of it;
  // it is not timed.
  // Errors: as CudaStatus, DeviceCommunicator::AllToAllV and the launches.
  absl::Status Launch(int slot, const Event& vacant, StagedBatch* window);

  // Gives `stream`, which waits for the window in slot `slot`, the work of
  // passing its tensors on to tensor peers, or, on ranks other than 0 of
  // `peers`, of filling them. Records window->packed anew. Errors: as
  // CudaStatus and DeviceCommunicator::Broadcast.
  absl::Status Broadcast(int slot, DeviceCommunicator* peers,
                         StagedBatch* window, cudaStream_t stream);

  const Stream& stream() const { return stream_; }

 private:
  struct Slot {
    StreamBuffer upload;
    StreamBuffer output;
  };

  DeviceStage(const JobShape& shape, PixelType pixel_type,
               DeviceCommunicator* communicator, Finding* finding,
               CudaPatchifier patchifier)
      : shape_(shape),
        pixel_type_(pixel_type),
        communicator_(communicator),
        finding_(finding),
        patchifier_(std::move(patchifier)) {}

  absl::Status Reserve(const StagedBatch& window, Slot* slot);
  absl::Status CopyIn(const StagedBatch& window, const Slot& slot);
  absl::Status CheckPeers(const StagedBatch& window, const Slot& slot);
  absl::Status Exchange(const StagedBatch& window);
  // Gives the batch the addresses of its tensors.
  void Point(const Slot& slot, StagedBatch* window) const;
  absl::Status Pack(const Slot& slot, StagedBatch* window);
  absl::Status PackText(const Slot& slot, const StagedBatch& window);
  absl::Status PackImages(const Slot& slot, const StagedBatch& window);

  const JobShape shape_;
  const PixelType pixel_type_;
  DeviceCommunicator* const communicator_;
  Finding* const finding_;
  const CudaPatchifier patchifier_;
  Stream stream_;
  Slot slots_[kSlots];
  StreamBuffer landing_;
  StreamBuffer headers_;         // one of each peer
  std::vector<uint32_t> peers_;  // whom headers pass to and from
  std::vector<DeviceSlice> sends_;
  std::vector<DeviceSlice> receives_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_STAGE_H_
