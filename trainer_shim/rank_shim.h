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
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/embedding_moves.h"
#include "trainer_shim/jpeg_engine.h"
#include "trainer_shim/role_source.h"

namespace ballast {

// Hands out the packed batches of one role (a data-parallel rank of one
// module), in order. Each batch has the fields that a rank at its place
// receives (batch_info.h). A trainer links TrainerShim (host/trainer_shim.h)
// for batches in host memory, or CudaTrainerShim (cuda/cuda_trainer_shim.h) for
// batches on a GPU; this class holds the rules of the calls for both. A process
// that holds ranks of several modules creates one shim for each module. Every
// shim has its own stream of blocks and exchanges only with the other
// data-parallel ranks of its module at the same place.
//
// A batch lives as long as any reference to it is held. Next never touches the
// memory of a held batch, whichever thread holds it, and held batches outlive
// the shim. The memory returns to the shim's pool when the last reference is
// released. Device memory is reused only after the work enqueued by then on the
// batch's streams: the stream given to Next and the streams given to
// BatchRef::RecordStream.
//
// A rank that receives no field (a pipeline stage of vision after the first)
// runs the same loop. Its batches have sample identities and totals but no
// tensors, need no block and no exchange, and end at the same step as on the
// other ranks.
//
// Without a tensor_communicator, every tensor rank pulls and packs its own
// batches. With one, tensor rank 0 pulls, packs and sends its batches to its
// tensor peers. These are two calls, so that a trainer can place each where it
// fits:
//
//   tensor rank 0: batch = Next(), SendToTensorPeers()
//   the others:    batch = ReceiveFromTensorPeer()
//
// Next, SendToTensorPeers, ReceiveFromTensorPeer and ExchangeEmbeddings must be
// called from one thread; Cancel, NumMicroBatches and ReportTiming may be
// called from any thread. The stream argument is a cudaStream_t of the shim's
// device, or null for host memory. If work on other streams reads a batch, see
// BatchRef::RecordStream.
class RankShim {
 public:
  struct Options {
    ServerOptions servers;
    RoleSource::Options source;
    // This rank's end of the group of the module's dp ranks at the same place.
    // Needed only if samples are exchanged, the module has more than one rank,
    // and this rank pulls blocks.
    std::unique_ptr<Communicator> communicator;
    // This rank's end of the group of its tensor peers (same dp, pipeline and
    // context rank, ranked by tp_rank): tensor rank 0 pulls for all. Null: each
    // rank pulls for itself.
    std::unique_ptr<Communicator> tensor_communicator;
    // Batches that may be held at a time. 0: DefaultBatchesHeld of the job. The
    // pool never has more batches than these plus the batches in preparation:
    // none in host memory; in device memory with overlap one, or two if images
    // pass through encoded.
    uint32_t max_batches_held = 0;
  };

  // Cancels unless all steps are done, joins its threads and leaves the
  // exchange, so that peers that still exchange end with UNAVAILABLE. Waits for
  // its work on the device. Held batches stay valid.
  virtual ~RankShim();
  RankShim(const RankShim&) = delete;
  RankShim& operator=(const RankShim&) = delete;

  // Returns the packed batch of the next micro-batch, in order of (step,
  // micro-batch). The schedule gives the number of micro-batches of a step,
  // which is the same on every rank.
  //
  // Host memory: blocks until the block has arrived and the module's ranks have
  // exchanged. Device memory: see CudaTrainerShim::Next.
  //
  // Two errors leave the shim usable. RESOURCE_EXHAUSTED: max_batches_held
  // batches are held; returned at once, before anything is pulled or exchanged,
  // with a message that names each. After a release, Next returns the same
  // batch. FAILED_PRECONDITION: this rank receives from a tensor peer, or
  // `stream` captures a CUDA graph, of which no batch can be a part.
  //
  // Every other error is final and repeated at every further call.
  // OUT_OF_RANGE: all steps are done, or the data have ended (job().end_step(),
  // the same on every rank; the message says which). Any other error also
  // aborts the communicators, so that the module's other ranks end with the
  // same cause instead of waiting: DATA_LOSS (a block, schedule or sample is
  // not what it should be; a peer follows another schedule), UNAVAILABLE (no
  // server answers, or a peer left), CANCELLED, and as BatchStream::Next,
  // ScheduleSource::Get and BatchMaker::Next. Messages name the role.
  absl::StatusOr<BatchRef<BatchInfo>> Next(StreamHandle stream);

  // Tensor rank 0 only: sends the batch that Next returned last to the tensor
  // peers. Call it once for each batch; all peers must receive. Until this call
  // or the next Next, the shim holds its own reference to the batch. Does
  // nothing if the rank has no peers. Errors: as Communicator::Broadcast; they
  // are final and abort both communicators. FAILED_PRECONDITION leaves the shim
  // usable: there is no tensor_communicator, no unsent batch, this is not rank
  // 0, or `stream` captures a CUDA graph.
  absl::Status SendToTensorPeers(StreamHandle stream);

  // Other tensor ranks, instead of Next: returns the next batch, as tensor rank
  // 0 got it. Plans from the schedule, then waits for the bytes (host memory)
  // or makes `stream` wait for them (device memory). Errors: as Next and
  // Communicator::Broadcast; OUT_OF_RANGE at the same batch as rank 0's Next.
  // FAILED_PRECONDITION leaves the shim usable: this rank must call Next, or
  // `stream` captures a CUDA graph.
  absl::StatusOr<BatchRef<BatchInfo>> ReceiveFromTensorPeer(
      StreamHandle stream);

  // With placement `split`, moves the embeddings of one micro-batch's media
  // from the ranks that made them to the ranks that train on their text, or
  // moves their gradients back. `batch`: this shim's batch, of an encoder.
  // `rows`: in the shim's kind of memory. All ranks of the module's group must
  // call it at the same place among their calls of Next, and with the same
  // row_bytes and direction, also ranks that move no row. Goes over
  // `communicator`, and needs one whatever the delivery, unless there is one
  // rank or the placement is `paired`: then rows are copied from one array to
  // the other.
  //
  // Host memory: blocks until this rank's rows are in place. Device memory:
  // enqueues the work on `stream`, after which the rows may be read, and does
  // not block; both arrays must stay valid until that work is done. The
  // exchange then also waits for the exchange of the batch made ahead.
  //
  // Errors: INVALID_ARGUMENT (as ListEmbeddingMoves; a batch of another job's
  // size) and FAILED_PRECONDITION (no communicator; modules on ranks of their
  // own; `stream` captures a CUDA graph) leave the shim usable, but the other
  // ranks wait: Cancel ends them. All
  // others are final, as in Next.
  absl::Status ExchangeEmbeddings(const BatchInfo& batch,
                                  const EmbeddingRows& rows,
                                  EmbeddingDirection direction,
                                  StreamHandle stream);

  // Returns the number of micro-batches of `step`, the same on every rank: a
  // pipeline schedule needs it before the step's first batch. With
  // packing.mode `scheduled` it differs from step to step. Takes no batch.
  // `step` may be any step. Known at once if the shim has fetched the step's
  // schedule for its batches, as it does ahead of demand. Otherwise blocks
  // until a server has computed it, at most as long as Next waits for servers.
  // A change of the running job may still alter the number of a step beyond the
  // next one (docs/changes.md). From any thread.
  //
  // Errors leave the shim usable: OUT_OF_RANGE (the step has no batches: it is
  // not before the end of the steps or of the data), CANCELLED, and as
  // ScheduleSource::Get.
  absl::StatusOr<uint32_t> NumMicroBatches(uint64_t step);

  // Ends blocked calls, here and on the module's other ranks, and all later
  // calls, with CANCELLED.
  void Cancel();

  // Reports to the servers how long forward and backward of one of this role's
  // micro-batches took (finite, at least 0), for `ballastctl fit-cost`, and the
  // known times of making its batch, for their metrics (StepTiming). The first
  // server that answers keeps it. Blocks for a round trip, plus a second for
  // each server that hangs. Errors leave the shim usable and may be ignored:
  // INVALID_ARGUMENT, FAILED_PRECONDITION (the server has another fingerprint
  // by now), or the cause that kept the last server from answering.
  absl::Status ReportTiming(uint64_t step, uint32_t micro_batch,
                            double milliseconds);

  const v1::Role& role() const { return options_.source.role; }
  const TrainerPlace& place() const { return options_.source.place; }
  // The servers' answer to Attach.
  const v1::Job& job() const { return source_->attached().job(); }
  // As RoleSource::RevisionsBefore.
  std::vector<v1::Revision> RevisionsBefore(uint64_t next_step) const {
    return source_->RevisionsBefore(next_step);
  }
  const v1::Fingerprint& fingerprint() const {
    return source_->attached().fingerprint();
  }
  // The schedule of the last batch's step; null before the first batch and once
  // the shim has ended. Valid until the next Next, and as long as a batch of
  // that step is held.
  const v1::StepSchedule* schedule() const { return schedule_.get(); }
  // The first step that still has batches to hand out.
  uint64_t next_step() const { return next_step_; }
  // Whether calls take a stream.
  bool on_device() const { return maker_->on_device(); }
  // Counts of the images that passed through encoded and were decoded here so
  // far, by what decoded them. Call from the thread that calls Next.
  JpegEngineCounts decoded() const { return maker_->decoded(); }
  // Number of held batches. From any thread.
  uint32_t batches_held() const { return pool_->held(); }
  // Number of batches, held or free, whose memory the shim owns. From any
  // thread.
  uint32_t pool_entries() const { return pool_->entries(); }

 protected:
  RankShim(Options options, std::unique_ptr<BatchMaker> maker);

  // Attaches over `clients` and begins to fetch. Errors also abort the
  // communicators.
  absl::Status Open(
      absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> clients);

 private:
  absl::Status Start(std::vector<std::unique_ptr<LoaderClient>> clients);
  // Whether batches come from a tensor peer.
  bool receives() const {
    return options_.tensor_communicator != nullptr && place().tp_rank > 0;
  }
  // Next and ReceiveFromTensorPeer, after the check that this rank may call
  // them.
  absl::StatusOr<BatchRef<BatchInfo>> Take(StreamHandle stream);
  absl::StatusOr<BatchEntry*> Make(StreamHandle stream);
  // Whether this rank's end of the group fits the batch's plan.
  absl::Status CheckEmbeddingGroup(const BatchInfo& batch) const;
  // Ends the shim with `status`, the error of a failed call.
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
  EmbeddingMoves moves_;  // reused
  absl::Status end_;      // final once not OK
};

// Enough for a 1F1B pipeline of the job's deepest module: one micro-batch for
// each of its stages, one that a plain loop still holds when it requests the
// next, and one that autograd has saved. At least 4.
uint32_t DefaultBatchesHeld(const v1::Job& job);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_RANK_SHIM_H_
