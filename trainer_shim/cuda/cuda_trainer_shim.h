#ifndef BALLAST_TRAINER_SHIM_CUDA_CUDA_TRAINER_SHIM_H_
#define BALLAST_TRAINER_SHIM_CUDA_CUDA_TRAINER_SHIM_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/loader_client.h"
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/cuda/cuda_batch_maker.h"
#include "trainer_shim/cuda/device_batch.h"
#include "trainer_shim/rank_shim.h"

namespace ballast {

// A trainer's shim with batches in a GPU's memory. RankShim has the rules of
// the calls. The block is copied to the device once, slices of it go straight
// to the peers' GPUs, and kernels write the batch out of what landed.
//
//   CudaTrainerShim::Options options;
//   options.servers.addresses = {"unix:/run/ballast/a.sock"};
//   options.source.role = ...;
//   options.communicator = std::move(communicator);  // nccl_communicator.h
//   options.device = local_rank;
//   auto shim = CudaTrainerShim::Create(std::move(options));
//   if (!shim.ok()) return shim.status();
//   while (true) {
//     absl::StatusOr<BatchRef<DeviceBatch>> batch = (*shim)->Next(stream);
//     if (absl::IsOutOfRange(batch.status())) break;  // all steps are done
//     if (!batch.ok()) return batch.status();
//     Train(**batch, stream);  // or keep *batch for as long as it is needed
//   }
//
// Streams. `stream` of Next waits until the batch is packed; the calling thread
// does not. Work on other streams that reads the batch must wait for `stream`,
// and BatchRef::RecordStream tells the shim of them. When the last reference
// goes, on any thread, an event is recorded on each of these streams, and the
// shim's stream waits for those before the batch's memory is used again: the
// reference may go as soon as the work that reads the batch has been enqueued.
// A stream lives until then; cudaStreamPerThread, which is another in each
// thread, cannot be one of them.
//
// Threads. Next is for one thread, on whose calls the device is given all its
// work, NCCL's included, in one order that is the same on every rank: so it
// also runs beside the trainer's own collectives where
// CUDA_DEVICE_MAX_CONNECTIONS is
// 1. Two threads of the shim's own pull and plan ahead, and watch for what goes
// wrong on the device. No call changes the current device but Create.
//
// A process that has several shims, a vision rank's and a language rank's say,
// - creates all of them, of all its threads, before it first calls Next of any:
//   making things ready on a device may wait for work that waits for a peer;
// - calls Next of those on one device in the same order as every other process,
//   from one thread: exchanges of two groups that two devices are given in
//   opposite orders may wait for each other without end, as NCCL's do.
//
// Memory on the device: up to max_batches_held batches, with overlap one more,
// one landing buffer, and the communicator's. Batches' memory is taken when it
// is first needed: a loop that holds one batch at a time has two, or three
// where it still holds it when it asks for the next. Pinned: four blocks, and 4
// KiB for each batch of the pool.
class CudaTrainerShim : public RankShim {
 public:
  // The device's options are CudaBatchMaker's.
  struct Options : RankShim::Options, CudaBatchMaker::Options {};

  // Attaches and begins to fetch. Leaves `device` the calling thread's current
  // one. Blocks until all servers have answered or failed to. Errors, which
  // also abort the communicators: as TrainerShim::Create and CudaStatus.
  static absl::StatusOr<std::unique_ptr<CudaTrainerShim>> Create(
      Options options);
  // The same over clients that exist already; options.servers is not read.
  static absl::StatusOr<std::unique_ptr<CudaTrainerShim>> Create(
      Options options, std::vector<std::unique_ptr<LoaderClient>> clients);

  // As RankShim's, except as follows. Blocks until a block is in host memory:
  // this batch's and, with overlap, the next one's too, as every rank must give
  // its device the same work in the same order. In the steady state both are
  // there. Before OUT_OF_RANGE is answered, waits until the device has read the
  // last blocks. Errors also: DEADLINE_EXCEEDED (Options::timeout), as
  // DeviceStage::Launch. What the device finds wrong is noticed within a
  // fraction of a second and answered by the next call.
  absl::StatusOr<BatchRef<DeviceBatch>> Next(cudaStream_t stream);

  // As RankShim's, with tensors that go from GPU to GPU. Both enqueue work on
  // `stream` and return without waiting for the device; all tensor peers must
  // call at the same place among their collectives. DeviceBatch::placeholders
  // are valid once the work on `stream` is done.
  absl::Status SendToTensorPeers(cudaStream_t stream) {
    return RankShim::SendToTensorPeers(stream);
  }
  absl::StatusOr<BatchRef<DeviceBatch>> ReceiveFromTensorPeer(
      cudaStream_t stream);

 private:
  explicit CudaTrainerShim(Options options);
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_CUDA_TRAINER_SHIM_H_
