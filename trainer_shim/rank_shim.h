#ifndef BALLAST_TRAINER_SHIM_RANK_SHIM_H_
#define BALLAST_TRAINER_SHIM_RANK_SHIM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/loader_client.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/batch_maker.h"
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/role_source.h"

namespace ballast {

// The packed batches of one role (a data-parallel rank of one module), in
// order, each with the fields that a rank at its place receives
// (role_fields.h): the rules of the calls, the same for batches in host memory
// (TrainerShim, host/trainer_shim.h) and in a GPU's (CudaTrainerShim,
// cuda/cuda_trainer_shim.h), which are what a trainer links. A process that
// holds ranks of several modules makes one shim for each; every shim has its
// own stream of blocks and exchanges with the other data-parallel ranks of its
// module at the same place only.
//
// A batch lives as long as somebody holds a reference to it: Next never touches
// the memory of a batch that is held, on whichever thread, and held batches
// outlive the shim. The memory goes back to the shim's pool when the last
// reference is gone. In device memory it is used again only after the work that
// the batch's streams had been given by then: the stream that it was asked for
// on, and those of BatchRef::RecordStream.
//
// A rank that receives no field (a pipeline stage of vision after the first)
// goes through the same loop: its batches have sample identities and totals and
// no tensors, need no block and no exchange, and end as all others do.
//
// Tensor peers each make all of this for themselves, or, where they are given a
// tensor_communicator, tensor rank 0 does and sends them what it got, in two
// calls, so that a trainer may put them where they suit it:
//
//   tensor rank 0: batch = Next(), SendToTensorPeers()
//   the others:    batch = ReceiveFromTensorPeer()
//
// Next, SendToTensorPeers and ReceiveFromTensorPeer are for one thread; Cancel
// and ReportTiming are for any. The stream that they take is a cudaStream_t of
// the shim's device, or null for host memory; where the trainer's batches are
// read by work on other streams, see BatchRef::RecordStream.
class RankShim {
 public:
  struct Options {
    ServerOptions servers;
    RoleSource::Options source;
    // This rank's end of the module's dp ranks at the same place. Needed only
    // where samples are exchanged, the module has more than one rank, and this
    // one pulls blocks.
    std::unique_ptr<Communicator> communicator;
    // This rank's end of its tensor peers (same dp, pipeline and context rank,
    // ranked by tp_rank): one of them pulls for all. Null: each for itself.
    std::unique_ptr<Communicator> tensor_communicator;
    // Batches that may be held at a time. 0: DefaultBatchesHeld of the job. The
    // pool never has more batches than these and the ones in preparation: none
    // in host memory, one in device memory with overlap.
    uint32_t max_batches_held = 0;
  };

  // Cancels unless all steps are done, joins, and leaves the exchange, so that
  // peers that still exchange end with UNAVAILABLE. Waits for its work on the
  // device. Batches that are held stay as they are.
  virtual ~RankShim();
  RankShim(const RankShim&) = delete;
  RankShim& operator=(const RankShim&) = delete;

  // The packed batch of the next micro-batch, in order of (step, micro-batch):
  // as many of a step as its schedule has, the same on every rank.
  //
  // Host memory: blocks until its block has come and the module's ranks have
  // exchanged. Device memory: see CudaTrainerShim.
  //
  // RESOURCE_EXHAUSTED at once, before anything is pulled or exchanged, where
  // max_batches_held batches are held; the message names each. It ends nothing:
  // after a release the same batch comes. So does FAILED_PRECONDITION: a rank
  // that receives from a tensor peer.
  //
  // Every other error is final and repeated at every further call.
  // OUT_OF_RANGE: all steps are done, or the data end (job().end_step(), the
  // same on every rank; the message says which). Any other has also aborted the
  // communicators, so that the module's other ranks end with the same cause
  // instead of waiting: DATA_LOSS (a block, schedule or sample is not what it
  // should be; a peer follows another schedule), UNAVAILABLE (no server
  // answers, or a peer left), CANCELLED, and as BatchStream::Next,
  // ScheduleSource::Get and BatchMaker's. Messages name the role.
  absl::StatusOr<BatchRef<BatchInfo>> Next(StreamHandle stream);

  // Tensor rank 0: sends the batch that Next answered last to the tensor peers.
  // Once for each batch; all peers must receive. Until then, or until the next
  // Next, the shim holds the batch itself. Does nothing where a rank has no
  // peers. Errors are final, and abort both communicators: as
  // Communicator::Broadcast. FAILED_PRECONDITION, which ends nothing: there is
  // no tensor_communicator, or no batch that is not sent, or this is not rank
  // 0.
  absl::Status SendToTensorPeers(StreamHandle stream);

  // The other tensor ranks, instead of Next: the next batch, as tensor rank 0
  // got it. Plans from the schedule, then waits for the bytes (host memory) or
  // makes `stream` wait (device memory). Errors: as Next and
  // Communicator::Broadcast; OUT_OF_RANGE at the same batch as rank 0's Next.
  // FAILED_PRECONDITION, which ends nothing: this rank calls Next.
  absl::StatusOr<BatchRef<BatchInfo>> ReceiveFromTensorPeer(
      StreamHandle stream);

  // Ends a call that blocks, here and on the module's other ranks, and every
  // later one, with CANCELLED.
  void Cancel();

  // Tells the servers what forward and backward of one of this role's
  // micro-batches took, at least 0 and finite, for `ballastctl fit-cost`, and
  // what is known of how long its batch took to make, for their metrics
  // (StepTiming). The first server that answers keeps it. Blocks for a round
  // trip, and a second for each server that hangs. An error ends nothing, and
  // none needs to be acted on: INVALID_ARGUMENT, FAILED_PRECONDITION (the
  // server has another fingerprint by now), or what kept the last server from
  // answering.
  absl::Status ReportTiming(uint64_t step, uint32_t micro_batch,
                            double milliseconds);

  const v1::Role& role() const { return options_.source.role; }
  const TrainerPlace& place() const { return options_.source.place; }
  // The servers' answer to Attach.
  const v1::Job& job() const { return source_->attached().job(); }
  const v1::Fingerprint& fingerprint() const {
    return source_->attached().fingerprint();
  }
  // The schedule of the step of the last batch; null before the first and once
  // the shim has ended. Valid until the next Next, and as long as a batch of
  // that step is held.
  const v1::StepSchedule* schedule() const { return schedule_.get(); }
  // The first step not all of whose batches have been handed out.
  uint64_t next_step() const { return next_step_; }
  // Whether calls take a stream.
  bool on_device() const { return maker_->on_device(); }
  // Batches that somebody holds. From any thread.
  uint32_t batches_held() const { return pool_->held(); }
  // Batches, held or not, whose memory the shim has. From any thread.
  uint32_t pool_entries() const { return pool_->entries(); }

 protected:
  RankShim(Options options, std::unique_ptr<BatchMaker> maker);

  // Attaches over `clients` and begins to fetch. An error has aborted the
  // communicators.
  absl::Status Open(
      absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> clients);

 private:
  absl::Status Start(std::vector<std::unique_ptr<LoaderClient>> clients);
  // Whether batches come from a tensor peer.
  bool receives() const {
    return options_.tensor_communicator != nullptr && place().tp_rank > 0;
  }
  // Next and ReceiveFromTensorPeer, once it is known that the call is right.
  absl::StatusOr<BatchRef<BatchInfo>> Take(StreamHandle stream);
  absl::StatusOr<BatchEntry*> Make(StreamHandle stream);
  // Makes `status`, of a call that failed, the end of the shim.
  absl::Status End(const absl::Status& status);
  // Names the role and aborts the communicators.
  absl::Status Fail(const absl::Status& status);
  void Abort(const absl::Status& reason);

  Options options_;
  std::unique_ptr<RoleSource> source_;
  std::shared_ptr<BatchPool> pool_;
  std::unique_ptr<BatchMaker> maker_;  // destroyed before what it uses
  BatchRef<BatchInfo> unsent_;         // for the tensor peers
  std::shared_ptr<const v1::StepSchedule> schedule_;
  uint64_t next_step_ = 0;
  absl::Status end_;  // final once not OK
};

// Enough for a 1F1B pipeline of the job's deepest module: each of its stages'
// micro-batches, the one that a plain loop still holds when it asks for the
// next, and one that autograd has saved. At least 4.
uint32_t DefaultBatchesHeld(const v1::Job& job);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_RANK_SHIM_H_
