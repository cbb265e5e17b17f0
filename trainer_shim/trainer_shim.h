#ifndef BALLAST_TRAINER_SHIM_TRAINER_SHIM_H_
#define BALLAST_TRAINER_SHIM_TRAINER_SHIM_H_

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
#include "trainer_shim/batch_assembler.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/packed_batch.h"
#include "trainer_shim/patchify.h"
#include "trainer_shim/role_source.h"

namespace ballast {

// What a trainer links: the packed batches of one role (a data-parallel rank of
// one module), in order. A process that holds ranks of several modules makes
// one shim for each; every shim has its own stream of blocks and exchanges with
// the other ranks of its module only.
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
    // Its seed is mixed with the role, so that ranks differ.
    FailoverOptions failover;
    v1::Role role;
    // This rank's end of the module's dp ranks. Needed only where delivery is
    // `exchange` and the module has more than one rank.
    std::unique_ptr<Communicator> communicator;
    // A checkpoint is (next step, fingerprint()): the run goes on at exactly the
    // next position, also with another dp size, micro-batch, delivery, balance,
    // packing, or other servers, as long as the data are the same.
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
  // first differing key), INVALID_ARGUMENT (no server, no such role, a
  // communicator that is missing or of another rank or size; those of
  // LoadChannelSecurity), UNAUTHENTICATED and PERMISSION_DENIED (TLS or the
  // token is refused), UNAVAILABLE and
  // DEADLINE_EXCEEDED (no server answers: each with its cause).
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
  // the message says which). Any other has also aborted the communicator, so that the
  // module's other ranks end with the same cause instead of waiting: DATA_LOSS
  // (a block or schedule is not what it should be), UNAVAILABLE (no server
  // answers, or a peer left), CANCELLED, and as BatchStream::Next,
  // ScheduleSource::Get and BatchAssembler::Assemble. Messages name the role.
  absl::StatusOr<const PackedBatch*> Next();

  // Ends a Next that blocks, here and on the module's other ranks, and every
  // later one, with CANCELLED.
  void Cancel();

  // Tells the servers what forward and backward of one of this role's
  // micro-batches took, for `ballastctl fit-cost`: at least 0 and finite. The
  // first server of Options.servers that answers keeps it. From any thread;
  // blocks for a round trip, and a second for each server that hangs. An error
  // ends nothing, and none needs to be acted on: INVALID_ARGUMENT,
  // FAILED_PRECONDITION (the server has another fingerprint by now), or what
  // kept the last server from answering.
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
  // Names the role and aborts the communicator.
  absl::Status Fail(const absl::Status& status);

  const v1::Role role_;
  const Options options_;
  std::unique_ptr<RoleSource> source_;
  std::unique_ptr<BatchAssembler> assembler_;
  const v1::StepSchedule* schedule_ = nullptr;
  absl::Status end_;  // final once not OK
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_TRAINER_SHIM_H_
