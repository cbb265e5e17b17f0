#ifndef BALLAST_TRAINER_SHIM_HOST_TRAINER_SHIM_H_
#define BALLAST_TRAINER_SHIM_HOST_TRAINER_SHIM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "common/channel_security.h"
#include "common/clock.h"
#include "proto/job.pb.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/batch_assembler.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/role_source.h"
#include "trainer_shim/trainer_place.h"

namespace ballast {

// What a trainer links: the packed batches of one role (a data-parallel rank of
// one module), in order, each with the fields that a rank at Options.place
// receives (role_fields.h). A process that holds ranks of several modules makes
// one shim for each; every shim has its own stream of blocks and exchanges with
// the other data-parallel ranks of its module at the same place only.
//
//   TrainerShim::Options options;
//   options.servers = {"unix:/run/ballast/a.sock"};
//   options.role.set_module(v1::MODULE_LANGUAGE);
//   options.role.set_dp_rank(3);
//   options.communicator = std::move(communicator);  // rank 3 of 4
//   options.start_step = checkpoint.next_step;
//   auto shim = TrainerShim::Create(std::move(options));
//   if (!shim.ok()) return shim.status();
//   while (true) {
//     absl::StatusOr<const PackedBatch*> batch = (*shim)->Next();
//     if (absl::IsOutOfRange(batch.status())) break;  // all steps are done
//     if (!batch.ok()) return batch.status();
//     Train(**batch);
//   }
//
// A rank that receives no field (a pipeline stage of vision after the first)
// goes through the same loop: its batches have sample identities and totals and
// no tensors, cost no block and no exchange, and end as all others do.
//
// Tensor peers each make all of this for themselves, or, where they are given a
// tensor_communicator, tensor rank 0 does and sends them what it got, in two
// calls, so that a trainer may put them where they suit it:
//
//   tensor rank 0: batch = Next(), SendToTensorPeers()
//   the others:    batch = ReceiveFromTensorPeer()
//
// Next is for one thread; Cancel and ReportTiming are for any. Blocks are
// fetched ahead by a thread of the shim's own; exchanging and packing happen in
// Next.
class TrainerShim {
 public:
  struct Options {
    // Addresses (`unix:/path` or `host:port`) of at least one server, in order
    // of preference. All that answer are attached to, and must have one
    // fingerprint; blocks come from the first, and from the next when it dies,
    // hangs, drains or is too slow.
    std::vector<std::string> servers;
    // How the servers and this client know each other; read by Create. Messages
    // name the fields as options of the command lines.
    SecurityFiles security;
    // Over how many connections, 1 to 8, blocks come that are not in shared
    // memory; other numbers count as the nearest of these. docs/flow_control.md
    // says how to choose.
    uint32_t streams = 1;
    // Its seed is mixed with the role, so that ranks differ.
    FailoverOptions failover;
    v1::Role role;
    TrainerPlace place;
    // This rank's end of the module's dp ranks at the same place. Needed only
    // where samples are exchanged, the module has more than one rank, and this
    // one pulls blocks.
    std::unique_ptr<Communicator> communicator;
    // This rank's end of its tensor peers (same dp, pipeline and context rank,
    // ranked by tp_rank): one of them pulls for all. Null: each for itself.
    std::unique_ptr<Communicator> tensor_communicator;
    // A checkpoint is (next step, fingerprint()): the run goes on at exactly
    // the next position, also with another dp size, micro-batch, delivery,
    // balance, packing, or other servers, as long as the data are the same.
    uint64_t start_step = 0;
    // Of the checkpoint: its data must be the servers' (CheckSameData). Empty:
    // there is none.
    v1::Fingerprint checkpoint;
    uint64_t steps = 0;  // 0: as long as there are data
    // What the job's fingerprint must be in everything. May be empty.
    v1::Fingerprint fingerprint;
    PixelType pixel_type = PixelType::kFloat32;
    Normalisation normalisation = Normalisation::kTorchvision;
    // Bytes of blocks that may be held or on their way. One block may always
    // be, however large.
    uint64_t max_bytes = uint64_t{256} << 20;
    Clock* clock = Clock::Real();  // of waits between attempts; outlives this
  };

  // Attaches and begins to fetch. Blocks until all servers have answered or
  // failed to.
  // Errors, which also abort the communicator: FAILED_PRECONDITION
  // (fingerprints differ, or the data are not the checkpoint's: both, and the
  // first differing key), INVALID_ARGUMENT (no server, no such role or place,
  // an alignment that context parallelism cannot cut, a communicator that is
  // missing or of another rank or size; those of LoadChannelSecurity),
  // UNAUTHENTICATED and PERMISSION_DENIED (TLS or the token is refused),
  // UNAVAILABLE and DEADLINE_EXCEEDED (no server answers: each with its cause).
  static absl::StatusOr<std::unique_ptr<TrainerShim>> Create(Options options);
  // The same over clients that are made already; options.servers is not read.
  static absl::StatusOr<std::unique_ptr<TrainerShim>> Create(
      Options options, std::vector<std::unique_ptr<LoaderClient>> clients);

  ~TrainerShim();  // cancels, joins, and leaves the exchange
  TrainerShim(const TrainerShim&) = delete;
  TrainerShim& operator=(const TrainerShim&) = delete;

  // The packed batch of the next micro-batch, in order of (step, micro-batch):
  // as many of a step as its schedule has, the same on every rank. Valid until
  // the next call. Blocks until its block has come and the module's
  // ranks have exchanged.
  //
  // Every error is final and repeated at every further call. OUT_OF_RANGE: all
  // steps are done, or the data end (job().end_step(), the same on every rank;
  // the message says which). Any other has also aborted the communicator, so
  // that the module's other ranks end with the same cause instead of waiting:
  // DATA_LOSS (a block or schedule is not what it should be), UNAVAILABLE (no
  // server answers, or a peer left), CANCELLED, and as BatchStream::Next,
  // ScheduleSource::Get and BatchAssembler::Assemble. Messages name the role.
  //
  // FAILED_PRECONDITION, which ends nothing: a rank that receives from a tensor
  // peer.
  absl::StatusOr<const PackedBatch*> Next();

  // Tensor rank 0: sends the batch that Next answered last to the tensor peers.
  // Once for each batch; all peers must receive. Blocks until it may be
  // overwritten. Does nothing where a rank has no peers. Errors are final, and
  // abort both communicators: as SendBatch. FAILED_PRECONDITION, which ends
  // nothing: there is no tensor_communicator, or no batch, or this is not rank
  // 0.
  absl::Status SendToTensorPeers();

  // The other tensor ranks, instead of Next: the next batch, as tensor rank 0
  // got it. Plans from the schedule, then waits for the bytes. Valid until the
  // next call. Errors, final: as Next and ReceiveBatch; OUT_OF_RANGE at the
  // same batch as rank 0's Next. FAILED_PRECONDITION, which ends nothing: this
  // rank calls Next.
  absl::StatusOr<const PackedBatch*> ReceiveFromTensorPeer();

  // Ends a call that blocks, here and on the module's other ranks, and every
  // later one, with CANCELLED.
  void Cancel();

  // Tells the servers what forward and backward of one of this role's
  // micro-batches took, for `ballastctl fit-cost`: at least 0 and finite. With
  // what is known of how long its batch took to come about, for their metrics
  // (StepTiming). The first server of Options.servers that answers keeps it.
  // From any thread; blocks for a round trip, and a second for each server that
  // hangs. An error ends nothing, and none needs to be acted on:
  // INVALID_ARGUMENT, FAILED_PRECONDITION (the server has another fingerprint
  // by now), or what kept the last server from answering.
  absl::Status ReportTiming(uint64_t step, uint32_t micro_batch,
                            double milliseconds) {
    return source_->ReportTiming(step, micro_batch, milliseconds);
  }

  const v1::Role& role() const { return role_; }
  // What the servers answered.
  const v1::Job& job() const { return source_->attached().job(); }
  const v1::Fingerprint& fingerprint() const {
    return source_->attached().fingerprint();
  }
  // The schedule of the last batch's step; null before the first. Valid until
  // the next call of Next.
  const v1::StepSchedule* schedule() const { return schedule_; }

 private:
  explicit TrainerShim(Options options);

  absl::Status Open(std::vector<std::unique_ptr<LoaderClient>> clients);
  // Whether batches come from a tensor peer.
  bool receives() const {
    return options_.tensor_communicator != nullptr &&
           options_.place.tp_rank > 0;
  }
  // Next and ReceiveFromTensorPeer, but for what follows an error.
  absl::StatusOr<const PackedBatch*> Take();
  absl::StatusOr<const PackedBatch*> Receive();
  // `status`, of a call that failed, as it ends the shim.
  absl::Status End(const absl::Status& status);
  // Names the role and aborts the communicators.
  absl::Status Fail(const absl::Status& status);
  void Abort(const absl::Status& reason);

  const v1::Role role_;
  const Options options_;
  std::unique_ptr<RoleSource> source_;
  std::unique_ptr<BatchAssembler> assembler_;
  const v1::StepSchedule* schedule_ = nullptr;
  const PackedBatch* batch_ = nullptr;  // that Next answered last
  absl::Status end_;                    // final once not OK
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_TRAINER_SHIM_H_
