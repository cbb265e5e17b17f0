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

// A trainer's shim with batches in GPU memory. RankShim documents the calls.
// Each block is copied to the device once, its slices go straight to the peers'
// GPUs, and kernels write the batch from the bytes that landed.
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
// Streams. The `stream` given to Next waits until the batch is packed; the
// calling thread does not. Work on other streams that reads the batch must wait
// for `stream`, and these streams must be given to BatchRef::RecordStream. At
// the last release, on any thread, an event is recorded on each of these
// streams; the shim's stream waits for the events before it reuses the batch's
// memory. So a reference may be released as soon as the work that reads the
// batch has been enqueued. Each of these streams must exist until that release.
// cudaStreamPerThread is not allowed, since it is a different stream in each
// thread.
//
// Threads. One thread calls Next, and its calls enqueue all of the shim's
// device work, NCCL's included, in one order that is the same on every rank. So
// the shim also runs together with the trainer's own collectives under
// CUDA_DEVICE_MAX_CONNECTIONS=1. Two more threads of the shim pull and plan
// ahead, and watch for errors on the device. With model.decode `device` a
// vision rank has four more: one gives files to the JPEG engines, one completes
// batches from there to the pack, and two drive the engines. Only Create
// changes the thread's current device.
//
// Several shims. A process with more than one, such as a vision rank's and a
// language rank's, must
// - create all of them, in all its threads, before the first Next of any:
//   creating one may wait for device work that waits for a peer;
// - call Next of the shims on one device from one thread, in the same order as
//   every other process: exchanges of two groups that are enqueued in opposite
//   orders on two devices can deadlock, as with NCCL itself.
//
// Device memory: up to max_batches_held batches, one more with overlap, one
// landing buffer, and the communicator's memory. A batch's memory is allocated
// when first needed: a loop that holds one batch at a time allocates two, or
// three if it still holds one when it requests the next. Pinned memory: four
// blocks, and 4 KiB for each batch of the pool. docs/gpu_shim.md says what
// images that pass through encoded need in addition: one more batch, landing
// buffer and planes.
class CudaTrainerShim : public RankShim {
 public:
  // CudaBatchMaker::Options has the options of the device.
  struct Options : RankShim::Options, CudaBatchMaker::Options {};

  // Attaches and begins to fetch. Makes `device` the calling thread's current
  // device. Blocks until every server has answered or failed. Errors also abort
  // the communicators: as TrainerShim::Create and CudaStatus.
  static absl::StatusOr<std::unique_ptr<CudaTrainerShim>> Create(
      Options options);
  // The same over existing clients; options.servers is ignored.
  static absl::StatusOr<std::unique_ptr<CudaTrainerShim>> Create(
      Options options, std::vector<std::unique_ptr<LoaderClient>> clients);

  // As RankShim::Next, except as follows. Blocks until this batch's block is in
  // host memory and, with overlap, the next one's too, since every rank must
  // enqueue the same device work in the same order. In the steady state both
  // are already there. A vision rank with model.decode `device` needs the block
  // after that, too. With encoded images it also blocks until they are decoded:
  // with overlap, decoding began two calls before. Before it returns
  // OUT_OF_RANGE it waits until the device has the last batch. Further
  // errors: as DeviceStage::Launch and DeviceStage::Finish; DATA_LOSS (an image
  // that cannot be decoded); DEADLINE_EXCEEDED (Options::timeout). An error on
  // the device is noticed within a fraction of a second and returned by the
  // next call.
  absl::StatusOr<BatchRef<DeviceBatch>> Next(cudaStream_t stream);

  // As in RankShim; tensors go from GPU to GPU. Both enqueue work on `stream`
  // and return without waiting for the device. All tensor peers must call at
  // the same place among their collectives. DeviceBatch::placeholders are valid
  // once the work on `stream` is done.
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
