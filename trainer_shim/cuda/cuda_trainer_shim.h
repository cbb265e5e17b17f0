#ifndef BALLAST_TRAINER_SHIM_CUDA_CUDA_TRAINER_SHIM_H_
#define BALLAST_TRAINER_SHIM_CUDA_CUDA_TRAINER_SHIM_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "common/channel_security.h"
#include "common/clock.h"
#include "proto/job.pb.h"
#include "trainer_shim/cuda/device_batch.h"
#include "trainer_shim/cuda/device_communicator.h"
#include "trainer_shim/cuda/device_watch.h"
#include "trainer_shim/cuda/pinned_regions.h"
#include "trainer_shim/cuda/device_stage.h"
#include "trainer_shim/cuda/batch_stager.h"
#include "trainer_shim/role_source.h"

namespace ballast {

// What a trainer with a GPU links: TrainerShim with batches in device memory.
// The block is copied to the device once, slices of it go straight to the
// peers' GPUs, and kernels write the batch out of what landed.
//
//   CudaTrainerShim::Options options;
//   options.source.role = ...;
//   options.servers = {"unix:/run/ballast/a.sock"};
//   options.communicator = std::move(communicator);  // nccl_communicator.h
//   options.device = local_rank;
//   auto shim = CudaTrainerShim::Create(std::move(options));
//   if (!shim.ok()) return shim.status();
//   while (true) {
//     absl::StatusOr<const DeviceBatch*> batch = (*shim)->Next(stream);
//     if (absl::IsOutOfRange(batch.status())) break;  // all steps are done
//     if (!batch.ok()) return batch.status();
//     Train(**batch, stream);
//   }
//
// Threads: Next is for one thread, on whose calls all work for the device is
// given, NCCL's included, in one order that is the same on every rank: so it
// also runs beside the trainer's own collectives where
// CUDA_DEVICE_MAX_CONNECTIONS is 1. Cancel is for any thread. Two threads of
// the shim's own pull and plan ahead, and watch for what goes wrong on the
// device.
//
// A process that has several shims, a vision rank's and a language rank's say,
// - creates all of them, of all its threads, before it first calls Next of any:
//   making things ready on a device may wait for work that waits for a peer;
// - calls Next of those on one device in the same order as every other process,
//   from one thread: exchanges of two groups that two devices are given in
//   opposite orders may wait for each other for ever, as NCCL's do.
//
// Memory on the device: the batches of two windows, one landing buffer and the
// communicator's. Pinned: four blocks.
class CudaTrainerShim {
 public:
  struct Options {
    // As in TrainerShim::Options.
    std::vector<std::string> servers;
    // How the servers and this client know each other; read by Create.
    SecurityFiles security;
    uint32_t streams = 1;  // as in TrainerShim::Options
    // source.place says where the rank stands; source.without_blocks is the
    // shim's to set.
    RoleSource::Options source;
    // This rank's end of the module's dp ranks at the same place. Needed only
    // where samples are exchanged, the module has more than one rank, and this
    // one pulls blocks.
    std::unique_ptr<DeviceCommunicator> communicator;
    // This rank's end of its tensor peers (same dp, pipeline and context rank,
    // ranked by tp_rank): one of them pulls for all. Null: each for itself.
    std::unique_ptr<DeviceCommunicator> tensor_communicator;
    int device = 0;
    PixelType pixel_type = PixelType::kBfloat16;
    Normalisation normalisation = Normalisation::kTorchvision;
    // Next also gives the device the work of the batch after, which then runs
    // beside the trainer's step. Off: a batch is made when it is asked for.
    bool overlap = true;
    // A window whose work the device has not done so long after it was given is
    // taken for hung: a peer is gone or far behind.
    absl::Duration timeout = absl::Minutes(10);
  };

  // Attaches and begins to fetch. Leaves `device` the calling thread's current
  // one. Blocks until all servers have answered or failed to. Errors, which
  // also abort the communicator: as TrainerShim::Create and CudaStatus.
  static absl::StatusOr<std::unique_ptr<CudaTrainerShim>> Create(
      Options options);
  // The same over clients that are made already; options.servers is not read.
  static absl::StatusOr<std::unique_ptr<CudaTrainerShim>> Create(
      Options options, std::vector<std::unique_ptr<LoaderClient>> clients);

  // Cancels unless all steps are done, joins, waits for its work on the device.
  ~CudaTrainerShim();
  CudaTrainerShim(const CudaTrainerShim&) = delete;
  CudaTrainerShim& operator=(const CudaTrainerShim&) = delete;

  // The batch of the next micro-batch, in order of (step, micro-batch).
  // `stream` of the shim's device waits until it is packed; the calling thread
  // does not. The batch may be read by work that is given to `stream` before
  // the next call of Next, which must be of the same stream or of one that
  // waits for it.
  //
  // Blocks until a block is in host memory: this batch's and, with overlap, the
  // next one's too, as every rank must give its device the same work in the
  // same order. In the steady state both are there.
  //
  // Every error is final and repeated at every further call, and has aborted
  // the communicator. OUT_OF_RANGE: all steps are done. DATA_LOSS (a block,
  // schedule or sample is not what it should be; a peer follows another
  // schedule or is at another step), DEADLINE_EXCEEDED (Options::timeout),
  // UNAVAILABLE (no server answers, or a peer left), CANCELLED, and as
  // RoleSource::Next and DeviceStage::Launch. What the device finds wrong is
  // noticed within a fraction of a second and answered by the next call.
  // Messages name the role.
  //
  // FAILED_PRECONDITION, which ends nothing: a rank that receives from a tensor
  // peer.
  absl::StatusOr<const DeviceBatch*> Next(cudaStream_t stream);

  // As of TrainerShim, with tensors that go from GPU to GPU (an NCCL
  // broadcast):
  //
  //   tensor rank 0: batch = Next(stream), SendToTensorPeers(stream)
  //   the others:    batch = ReceiveFromTensorPeer(stream)
  //
  // Both give `stream`, of which is said what is of Next's, the work and do not
  // wait for the device; all tensor peers must come to have it in the same
  // place among their collectives. SendToTensorPeers: once for each batch,
  // before the next Next. ReceiveFromTensorPeer blocks until the schedule is
  // here, no block being pulled; the batch may be read as Next's may,
  // DeviceBatch::placeholders once what `stream` was given is done. Errors,
  // final: as Next and DeviceCommunicator::Broadcast. FAILED_PRECONDITION,
  // which ends nothing: the other ranks' call, or no batch to send.
  absl::Status SendToTensorPeers(cudaStream_t stream);
  absl::StatusOr<const DeviceBatch*> ReceiveFromTensorPeer(cudaStream_t stream);

  // Ends a Next that blocks, and every later one, with CANCELLED, and aborts
  // the communicator.
  void Cancel();

  // See TrainerShim::ReportTiming. From any thread. With what the device took
  // to copy, exchange and pack the batch, as far as that is known: it is seen
  // at once by a thread whose current device is the shim's, and within
  // DeviceWatch::Options::interval for others.
  absl::Status ReportTiming(uint64_t step, uint32_t micro_batch,
                            double milliseconds);

  const v1::Role& role() const { return source_->role(); }
  const v1::Job& job() const { return source_->attached().job(); }
  const v1::Fingerprint& fingerprint() const {
    return source_->attached().fingerprint();
  }

 private:
  explicit CudaTrainerShim(Options options);

  absl::Status Open(std::vector<std::unique_ptr<LoaderClient>> clients);
  // Whether batches come from a tensor peer.
  bool receives() const {
    return options_.tensor_communicator != nullptr &&
           options_.source.place.tp_rank > 0;
  }
  // What Next and ReceiveFromTensorPeer have in common.
  absl::StatusOr<const DeviceBatch*> Take(cudaStream_t stream);
  absl::StatusOr<const DeviceBatch*> Advance(cudaStream_t stream);
  absl::Status Broadcast(cudaStream_t stream);
  // Gives the device the work of the next window, into the other slot. OK with
  // next_ null at the end of the steps.
  absl::Status LaunchNext();
  // `status`, of a call that failed, as it ends the shim.
  absl::Status End(const absl::Status& status);
  absl::Status Fail(const absl::Status& status);
  void Abort(const absl::Status& reason);

  Options options_;
  std::unique_ptr<RoleSource> source_;
  PinnedBuffer finding_;  // one Finding
  PinnedRegions regions_;
  std::unique_ptr<DeviceStage> device_;
  // After what their threads use.
  std::unique_ptr<BatchStager> feed_;
  std::unique_ptr<DeviceWatch> watch_;

  Event vacant_[DeviceStage::kSlots];  // what used a slot's batch is done
  int slot_ = 0;                        // of the next window to launch
  StagedBatch* current_ = nullptr;      // that Next gave out
  int current_slot_ = 0;
  StagedBatch* next_ = nullptr;  // launched, not given out
  absl::Status after_;  // what follows next_, once launching has failed
  absl::Status end_;    // final once not OK
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_CUDA_TRAINER_SHIM_H_
