#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_STAGE_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_STAGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/batch_stager.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/device_entry.h"
#include "trainer_shim/cuda/patchify_cuda.h"
#include "trainer_shim/cuda/staging_kernels.h"
#include "trainer_shim/exchange_slices.h"
#include "trainer_shim/job_shape.h"

namespace ballast {

// The device's part of one micro-batch: copies the block in, exchanges, checks
// and packs, all as work of one stream. Holds one landing buffer; the batch's
// memory is the entry's. Buffers grow to twice the largest micro-batch seen,
// and are kept. Thread-compatible, and used on threads whose current device is
// its own.
class DeviceStage {
 public:
  // `stream` is the shim's. `communicator` is not owned; it may be null where
  // `shape` exchanges nothing. `finding` is pinned memory. Errors: as
  // CudaStatus.
  static absl::StatusOr<std::unique_ptr<DeviceStage>> Create(
      const JobShape& shape, PixelType pixel_type, Normalisation normalisation,
      std::shared_ptr<const CudaStream> stream, Communicator* communicator,
      Finding* finding);

  // Gives the stream all the work of `staged`, whose batch moves to `entry` and
  // gets its pointers there. What the entry held before is overwritten once its
  // readers are done. Records entry->packed, staged->read and the phases of
  // staged->timer: copying in, without what came before; the exchange with the
  // comparing of headers, where `shape` has one; checking records and packing.
  // Does not wait for the device.
  // A micro-batch without a block gets its pointers, and what the host knows of
  // it; it is not timed.
  // Errors: as CudaStatus, Communicator::AllToAllV and the launches.
  absl::Status Launch(DeviceEntry* entry, StagedBatch* staged);

  // Gives `stream`, which waits for the batch in `entry`, the work of passing
  // its tensors on to tensor peers, or, on ranks other than 0 of `peers`, of
  // filling them. Records entry->packed anew. Errors: as CudaStatus and
  // Communicator::Broadcast.
  absl::Status Broadcast(DeviceEntry* entry, Communicator* peers,
                         cudaStream_t stream);

 private:
  DeviceStage(const JobShape& shape, PixelType pixel_type,
              std::shared_ptr<const CudaStream> stream,
              Communicator* communicator, Finding* finding,
              CudaPatchifier patchifier)
      : shape_(shape),
        pixel_type_(pixel_type),
        communicator_(communicator),
        finding_(finding),
        patchifier_(std::move(patchifier)),
        stream_(std::move(stream)) {}

  absl::Status Reserve(const StagedBatch& staged, DeviceEntry* entry);
  absl::Status CopyIn(const StagedBatch& staged, const DeviceEntry& entry);
  absl::Status CheckPeers(const StagedBatch& staged, const DeviceEntry& entry);
  absl::Status Exchange(const StagedBatch& staged);
  // Gives the entry's batch the addresses of its tensors.
  void Point(const StagingPlan& plan, DeviceEntry* entry) const;
  absl::Status Pack(const StagedBatch& staged, const DeviceEntry& entry);
  absl::Status PackText(const StagedBatch& staged, const DeviceEntry& entry);
  absl::Status PackImages(const StagedBatch& staged, const DeviceEntry& entry);

  const JobShape shape_;
  const PixelType pixel_type_;
  Communicator* const communicator_;
  Finding* const finding_;
  const CudaPatchifier patchifier_;
  const std::shared_ptr<const CudaStream> stream_;  // outlives the buffers
  StreamBuffer landing_;
  StreamBuffer headers_;         // one of each peer
  std::vector<uint32_t> peers_;  // ranks that headers pass to and from
  ExchangeSlices slices_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_STAGE_H_
