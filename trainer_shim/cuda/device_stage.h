#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_STAGE_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_STAGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/batch_stager.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/device_batch.h"
#include "trainer_shim/cuda/patchify_cuda.h"
#include "trainer_shim/cuda/staging_kernels.h"
#include "trainer_shim/exchange_plan.h"

namespace ballast {

// The device's part of one micro-batch: copies the block in, exchanges, checks
// and packs, all on one stream. Owns the landing buffers; the batch's memory
// belongs to the entry. Buffers grow to twice the largest micro-batch seen, and
// are kept. Thread-compatible, except for Finish; its device must be the
// calling thread's current one.
class DeviceStage {
 public:
  // `stream` is the shim's. `communicator` is not owned; it may be null if
  // `shape` exchanges nothing. `finding` is pinned memory. `landings`: batches
  // that may be launched and not finished, at least 1. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<DeviceStage>> Create(
      const JobShape& shape, PixelType pixel_type, Normalisation normalisation,
      std::shared_ptr<const CudaStream> stream, Communicator* communicator,
      Finding* finding, size_t landings = 1);

  // Enqueues all work of `staged` on the stream. Its batch moves to `entry` and
  // gets its pointers there. The entry's previous batch is overwritten once its
  // readers are done. Records entry->packed, staged->read and the phases of
  // staged->timer: the copy from the host, without earlier work; the exchange,
  // with the comparison of headers, if `shape` exchanges; checking records and
  // packing. Does not wait for the device. A micro-batch without a block gets
  // only its pointers and the values that the host knows, and is not timed.
  // Errors: as CudaStatus, Communicator::AllToAllV and the kernel launches.
  //
  // A batch with encoded images (staged->plan.encoded) gets only the copies and
  // the exchange, and staged->arrived is recorded after them. Its images are
  // then to be decoded into the landing buffer, and Finish enqueues the rest.
  absl::Status Launch(DeviceEntry* entry, StagedBatch* staged);

  // Enqueues the rest of Launch for a batch whose encoded images are decoded,
  // or will be by work for which the stream waits. May be called from another
  // thread than Launch, also during the launch of a later batch, but before the
  // launch of the batch that takes the same landing buffer. Errors: as Launch.
  absl::Status Finish(DeviceEntry* entry, StagedBatch* staged);

  cudaStream_t stream() const { return stream_->get(); }

  // Makes `stream` wait for the batch in `entry`, and enqueues on it the
  // sending of its tensors to the tensor peers, or, on ranks of `peers` other
  // than 0, their receiving, where a batch of another step or micro-batch
  // becomes a Finding. Records entry->packed again. Errors: as CudaStatus and
  // Communicator::Broadcast.
  absl::Status Broadcast(DeviceEntry* entry, Communicator* peers,
                         cudaStream_t stream);

 private:
  DeviceStage(const JobShape& shape, PixelType pixel_type,
              std::shared_ptr<const CudaStream> stream,
              Communicator* communicator, Finding* finding,
              CudaPatchifier patchifier, size_t landings)
      : shape_(shape),
        pixel_type_(pixel_type),
        communicator_(communicator),
        finding_(finding),
        patchifier_(std::move(patchifier)),
        stream_(std::move(stream)),
        landings_(landings) {}

  // Also takes the next landing buffer.
  absl::Status Reserve(StagedBatch* staged, DeviceEntry* entry);
  absl::Status CopyIn(const StagedBatch& staged, const DeviceEntry& entry);
  absl::Status CheckPeers(const StagedBatch& staged, const DeviceEntry& entry);
  absl::Status Exchange(const StagedBatch& staged);
  // Copies received files to the host and records staged.arrived.
  absl::Status CopyOut(const StagedBatch& staged);
  // Sets the addresses of the tensors in the entry's batch.
  void Point(const StagingPlan& plan, DeviceEntry* entry) const;
  absl::Status Pack(const StagedBatch& staged, const DeviceEntry& entry);
  absl::Status PackText(const StagedBatch& staged, const DeviceEntry& entry);
  absl::Status PackImages(const StagedBatch& staged, const DeviceEntry& entry);
  // A separate launch, so that the launch of still images stays as fast as
  // without videos.
  absl::Status PackVideos(const StagedBatch& staged, const DeviceEntry& entry);
  absl::Status PackClips(const StagedBatch& staged, const DeviceEntry& entry);
  // `count` images, whose descriptions are at `upload`, become the rows of
  // `tensor`.
  PatchifyBatch GetPatches(const StagedBatch& staged, const DeviceEntry& entry,
                           uint64_t upload, uint32_t count,
                           absl::string_view tensor) const;

  const JobShape shape_;
  const PixelType pixel_type_;
  Communicator* const communicator_;
  Finding* const finding_;
  const CudaPatchifier patchifier_;
  const std::shared_ptr<const CudaStream> stream_;  // outlives the buffers
  std::vector<StreamBuffer> landings_;              // used in turn
  uint64_t landed_ = 0;                             // batches that have used
                                                    // one
  StreamBuffer headers_;                            // one from each peer
  std::vector<uint32_t> peers_;  // ranks to exchange headers with
  ExchangeSlices slices_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_STAGE_H_
