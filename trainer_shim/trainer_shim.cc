#include "trainer_shim/trainer_shim.h"

#include <utility>

#include "client/batch_fetcher.h"
#include "common/status_macros.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<TrainerShim>> TrainerShim::Create(
    Options options) {
  absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> clients =
      ClientsOf(options.servers, options.security);
  if (!clients.ok()) {
    return TrainerShim(std::move(options)).Fail(clients.status());
  }
  return Create(std::move(options), *std::move(clients));
}

absl::StatusOr<std::unique_ptr<TrainerShim>> TrainerShim::Create(
    Options options, std::vector<std::unique_ptr<LoaderClient>> clients) {
  std::unique_ptr<TrainerShim> shim(new TrainerShim(std::move(options)));
  const absl::Status status = shim->Open(std::move(clients));
  if (!status.ok()) return shim->Fail(status);
  return shim;
}

TrainerShim::TrainerShim(Options options)
    : role_(options.role), options_(std::move(options)) {}

TrainerShim::~TrainerShim() = default;

absl::Status TrainerShim::Open(
    std::vector<std::unique_ptr<LoaderClient>> clients) {
  RoleSource::Options source;
  source.role = role_;
  source.start_step = options_.start_step;
  source.steps = options_.steps;
  source.checkpoint = options_.checkpoint;
  source.fingerprint = options_.fingerprint;
  source.max_bytes = options_.max_bytes;
  source.failover = options_.failover;
  source.clock = options_.clock;
  BALLAST_ASSIGN_OR_RETURN(source_,
                           RoleSource::Create(std::move(clients), source));
  Communicator* communicator = options_.communicator.get();
  const bool there = communicator != nullptr;
  BALLAST_RETURN_IF_ERROR(CheckCommunicator(source_->shape(), role_,
                                            there ? communicator->rank() : 0,
                                            there ? communicator->size() : 0));
  assembler_ = std::make_unique<BatchAssembler>(
      role_, source_->shape(), options_.pixel_type, options_.normalisation,
      communicator);
  return absl::OkStatus();
}

absl::StatusOr<const PackedBatch*> TrainerShim::Next() {
  if (!end_.ok()) return end_;
  schedule_ = nullptr;
  absl::StatusOr<RoleSource::Block> next = source_->Next();
  if (absl::IsOutOfRange(next.status())) return end_ = next.status();
  if (!next.ok()) return end_ = Fail(next.status());
  schedule_ = next->schedule;
  absl::StatusOr<const PackedBatch*> batch = assembler_->Assemble(
      *schedule_, next->block->micro_batch(), next->block->bytes());
  if (!batch.ok()) return end_ = Fail(batch.status());
  const absl::Status intact = CheckIntact(*next->block);
  if (!intact.ok()) return end_ = Fail(intact);
  return batch;
}

absl::Status TrainerShim::Fail(const absl::Status& status) {
  const absl::Status named = NameRole(status, role_);
  if (options_.communicator != nullptr) options_.communicator->Abort(named);
  return named;
}

void TrainerShim::Cancel() {
  if (options_.communicator != nullptr) {
    options_.communicator->Abort(
        NameRole(absl::CancelledError("cancelled"), role_));
  }
  source_->Cancel();
}

}  // namespace ballast
