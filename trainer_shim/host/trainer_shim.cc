#include "trainer_shim/host/trainer_shim.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/batch_fetcher.h"
#include "common/status_macros.h"
#include "trainer_shim/batch_times.h"
#include "trainer_shim/host/tensor_broadcast.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<TrainerShim>> TrainerShim::Create(
    Options options) {
  absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> clients =
      ClientsOf(options.servers, options.security, options.streams);
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
  source.place = options_.place;
  source.without_blocks = receives();
  source.start_step = options_.start_step;
  source.steps = options_.steps;
  source.checkpoint = options_.checkpoint;
  source.fingerprint = options_.fingerprint;
  source.max_bytes = options_.max_bytes;
  source.failover = options_.failover;
  source.clock = options_.clock;
  BALLAST_ASSIGN_OR_RETURN(source_,
                           RoleSource::Create(std::move(clients), source));
  const auto end_of = [](const Communicator* group) {
    return group == nullptr ? std::pair<uint32_t, uint32_t>(0, 0)
                            : std::pair(group->rank(), group->size());
  };
  Communicator* communicator = options_.communicator.get();
  const auto [tensor_rank, tensor_size] =
      end_of(options_.tensor_communicator.get());
  BALLAST_RETURN_IF_ERROR(
      CheckTensorCommunicator(source_->shape(), tensor_rank, tensor_size));
  if (source_->has_blocks()) {
    const auto [rank, size] = end_of(communicator);
    BALLAST_RETURN_IF_ERROR(
        CheckCommunicator(source_->shape(), role_, rank, size));
  }
  assembler_ = std::make_unique<BatchAssembler>(
      role_, source_->shape(), options_.pixel_type, options_.normalisation,
      communicator);
  return absl::OkStatus();
}

absl::StatusOr<const PackedBatch*> TrainerShim::Next() {
  if (!end_.ok()) return end_;
  if (receives()) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor rank ", options_.place.tp_rank,
                     " has its batches from tensor rank 0: it calls "
                     "ReceiveFromTensorPeer instead of Next"));
  }
  schedule_ = nullptr;
  batch_ = nullptr;
  absl::StatusOr<const PackedBatch*> batch = Take();
  if (!batch.ok()) return End(batch.status());
  batch_ = *batch;
  return batch;
}

absl::StatusOr<const PackedBatch*> TrainerShim::Take() {
  BALLAST_ASSIGN_OR_RETURN(const RoleSource::Block next, source_->Next());
  schedule_ = next.schedule;
  if (next.block == nullptr) {
    return assembler_->Describe(*schedule_, next.micro_batch);
  }
  BALLAST_ASSIGN_OR_RETURN(
      const PackedBatch* batch,
      assembler_->Assemble(*schedule_, next.micro_batch, next.block->bytes()));
  BALLAST_RETURN_IF_ERROR(CheckIntact(*next.block));
  BatchTimes times;
  times.step = batch->step;
  times.micro_batch = batch->micro_batch;
  if (source_->shape().exchanges()) times.exchange = batch->exchange_time;
  times.pack = batch->pack_time;
  source_->NoteTimes(times);
  return batch;
}

absl::Status TrainerShim::SendToTensorPeers() {
  if (!end_.ok()) return end_;
  Communicator* peers = options_.tensor_communicator.get();
  if (peers == nullptr || receives() || batch_ == nullptr) {
    return absl::FailedPreconditionError(
        "SendToTensorPeers is for tensor rank 0, with a tensor_communicator "
        "and after a Next that answered a batch");
  }
  const absl::Status sent = SendBatch(*batch_, peers);
  return sent.ok() ? sent : End(sent);
}

absl::StatusOr<const PackedBatch*> TrainerShim::ReceiveFromTensorPeer() {
  if (!end_.ok()) return end_;
  if (!receives()) {
    return absl::FailedPreconditionError(
        "ReceiveFromTensorPeer is for tensor ranks other than 0 with a "
        "tensor_communicator; this one calls Next");
  }
  schedule_ = nullptr;
  absl::StatusOr<const PackedBatch*> batch = Receive();
  if (!batch.ok()) return End(batch.status());
  return batch;
}

absl::StatusOr<const PackedBatch*> TrainerShim::Receive() {
  BALLAST_ASSIGN_OR_RETURN(const RoleSource::Block next, source_->Next());
  schedule_ = next.schedule;
  BALLAST_ASSIGN_OR_RETURN(PackedBatch * batch,
                           assembler_->Describe(*schedule_, next.micro_batch));
  BALLAST_RETURN_IF_ERROR(
      ReceiveBatch(options_.tensor_communicator.get(), batch));
  return batch;
}

absl::Status TrainerShim::End(const absl::Status& status) {
  // At the end of the steps all ranks leave their groups in good order.
  return end_ = absl::IsOutOfRange(status) ? status : Fail(status);
}

absl::Status TrainerShim::Fail(const absl::Status& status) {
  const absl::Status named = NameRole(status, role_);
  Abort(named);
  return named;
}

void TrainerShim::Abort(const absl::Status& reason) {
  for (const auto* communicator :
       {&options_.communicator, &options_.tensor_communicator}) {
    if (*communicator != nullptr) (*communicator)->Abort(reason);
  }
}

void TrainerShim::Cancel() {
  Abort(NameRole(absl::CancelledError("cancelled"), role_));
  source_->Cancel();
}

}  // namespace ballast
