#include "trainer_shim/rank_shim.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/batch_layout.h"

namespace ballast {

RankShim::RankShim(Options options, std::unique_ptr<BatchMaker> maker)
    : options_(std::move(options)),
      maker_(std::move(maker)),
      next_step_(options_.source.start_step) {}

RankShim::~RankShim() {
  // After the last step all ranks leave their groups in good order. Before
  // that, abort: the others would wait for this rank.
  if (source_ != nullptr && !absl::IsOutOfRange(end_)) {
    maker_->Cancel();
    source_->Cancel();
    const absl::Status left =
        NameRole(absl::UnavailableError("left the exchange"), role());
    maker_->Abort(left);
    Abort(left);
  }
  unsent_.Reset();
  maker_ = nullptr;
  if (pool_ != nullptr) pool_->Close();
}

absl::Status RankShim::Open(
    absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> clients) {
  const absl::Status status =
      clients.ok() ? Start(*std::move(clients)) : clients.status();
  return status.ok() ? status : end_ = Fail(status);
}

absl::Status RankShim::Start(
    std::vector<std::unique_ptr<LoaderClient>> clients) {
  for (const Communicator* each :
       {options_.communicator.get(), options_.tensor_communicator.get()}) {
    if (each == nullptr || each->on_device() == maker_->on_device()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a communicator is for ", each->on_device() ? "device" : "host",
        " memory, wanted one for ", each->on_device() ? "host" : "device",
        " memory, where the shim's batches are"));
  }
  options_.source.without_blocks = receives();
  BALLAST_ASSIGN_OR_RETURN(
      source_, RoleSource::Create(std::move(clients), options_.source));
  BatchMaker::Setup setup;
  setup.source = source_.get();
  setup.communicator = options_.communicator.get();
  setup.tensor_communicator = options_.tensor_communicator.get();
  setup.max_bytes = options_.source.max_bytes;
  BALLAST_RETURN_IF_ERROR(
      CheckTensorCommunicator(source_->shape(), setup.tensor_communicator));
  if (source_->has_blocks()) {
    BALLAST_RETURN_IF_ERROR(
        CheckCommunicator(source_->shape(), role(), setup.communicator));
  }
  const uint32_t max_held = options_.max_batches_held == 0
                                ? DefaultBatchesHeld(job())
                                : options_.max_batches_held;
  pool_ = std::make_shared<BatchPool>(
      max_held, [maker = maker_.get()] { return maker->MakeEntry(); });
  setup.pool = pool_.get();
  return maker_->Open(setup);
}

absl::StatusOr<BatchRef<BatchInfo>> RankShim::Next(StreamHandle stream) {
  if (!end_.ok()) return end_;
  if (receives()) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor rank ", place().tp_rank,
                     " has its batches from tensor rank 0: it calls "
                     "ReceiveFromTensorPeer instead of Next"));
  }
  return Take(stream);
}

absl::StatusOr<BatchRef<BatchInfo>> RankShim::ReceiveFromTensorPeer(
    StreamHandle stream) {
  if (!end_.ok()) return end_;
  if (!receives()) {
    return absl::FailedPreconditionError(
        "ReceiveFromTensorPeer is for tensor ranks other than 0 with a "
        "tensor_communicator; this one calls Next");
  }
  return Take(stream);
}

absl::StatusOr<BatchRef<BatchInfo>> RankShim::Take(StreamHandle stream) {
  BALLAST_RETURN_IF_ERROR(maker_->CheckStream(stream));
  unsent_.Reset();
  BALLAST_RETURN_IF_ERROR(pool_->CheckRoom());
  schedule_ = nullptr;
  const absl::Status found = maker_->Found();
  if (!found.ok()) return End(found);
  absl::StatusOr<BatchEntry*> entry = Make(stream);
  if (!entry.ok()) return End(entry.status());
  BatchRef<BatchInfo> batch = pool_->GiveOut(*entry);
  schedule_ = batch->schedule;
  next_step_ =
      batch->step + (batch->micro_batch + 1 == batch->num_micro_batches);
  if (options_.tensor_communicator != nullptr && !receives()) unsent_ = batch;
  return batch;
}

absl::StatusOr<BatchEntry*> RankShim::Make(StreamHandle stream) {
  BALLAST_ASSIGN_OR_RETURN(BatchEntry * entry, maker_->Next(stream));
  if (!receives()) return entry;
  const absl::Status received = maker_->Broadcast(entry, stream);
  if (received.ok()) return entry;
  pool_->PutBack(entry);
  return received;
}

absl::Status RankShim::SendToTensorPeers(StreamHandle stream) {
  if (!end_.ok()) return end_;
  if (!unsent_) {
    return absl::FailedPreconditionError(
        "SendToTensorPeers is for tensor rank 0, with a tensor_communicator "
        "and once after each Next that answered a batch");
  }
  BALLAST_RETURN_IF_ERROR(maker_->CheckStream(stream));
  const absl::Status sent = maker_->Broadcast(unsent_.entry(), stream);
  unsent_.Reset();
  return sent.ok() ? sent : End(sent);
}

absl::Status RankShim::CheckEmbeddingGroup(const BatchInfo& batch) const {
  const v1::Module encoder = batch.role.module();
  const EmbeddingPlan& plan = FindPlan(batch.embeddings, encoder);
  const size_t ranks = plan.send.size();
  const Communicator* group = options_.communicator.get();
  if (plan.apart()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "embeddings move between modules on separate ranks "
        "(topology.colocated: false), which this shim's communicator does not "
        "join: move them over the trainer's own by ",
        PlanTensorName(encoder, "send_host"), " of the encoder's batches, ",
        PlanTensorName(encoder, "receive_host"), " and ",
        PlanTensorName(encoder, "order"), " of language's"));
  }
  if (plan.shared) {
    return absl::FailedPreconditionError(absl::StrCat(
        "embeddings go to all ranks that share a pack (packing.dynamic_cp), "
        "which this shim's communicator does not do: move them over the "
        "trainer's own by ",
        PlanTensorName(encoder, "send_host"), ", ",
        PlanTensorName(encoder, "send_order"), ", ",
        PlanTensorName(encoder, "receive_host"), " and ",
        PlanTensorName(encoder, "order")));
  }
  if (ranks <= 1) return absl::OkStatus();
  if (group == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "embeddings move between ", ranks,
        " data-parallel ranks, and this shim has no communicator; give one, "
        "whatever balance.delivery is"));
  }
  if (group->size() == ranks && group->rank() == batch.role.dp_rank()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "embeddings: found rank ", group->rank(), " of ", group->size(),
      " in the communicator, wanted data-parallel rank ", batch.role.dp_rank(),
      " of ", ranks));
}

absl::Status RankShim::ExchangeEmbeddings(const BatchInfo& batch,
                                          const EmbeddingRows& rows,
                                          EmbeddingDirection direction,
                                          StreamHandle stream) {
  if (!end_.ok() && !absl::IsOutOfRange(end_)) return end_;
  BALLAST_RETURN_IF_ERROR(maker_->CheckStream(stream));
  BALLAST_RETURN_IF_ERROR(CheckEmbeddingGroup(batch));
  BALLAST_RETURN_IF_ERROR(ListEmbeddingMoves(batch, rows, direction, &moves_));
  const absl::Status found = maker_->Found();
  if (!found.ok()) return End(found);
  const absl::Status moved = maker_->Move(batch, moves_, stream);
  return moved.ok() ? moved : End(moved);
}

absl::Status RankShim::ReportTiming(uint64_t step, uint32_t micro_batch,
                                    double milliseconds) {
  maker_->NoteTimes();
  return source_->ReportTiming(step, micro_batch, milliseconds);
}

absl::StatusOr<uint32_t> RankShim::NumMicroBatches(uint64_t step) {
  absl::StatusOr<uint32_t> number = source_->NumMicroBatches(step);
  if (number.ok() || absl::IsOutOfRange(number.status())) return number;
  return NameRole(number.status(), role());
}

absl::Status RankShim::End(const absl::Status& status) {
  // At the end of the steps all ranks leave their groups in good order.
  if (absl::IsOutOfRange(status)) return end_ = status;
  // The maker may know the cause.
  const absl::Status found = maker_->Found();
  return end_ = Fail(found.ok() ? status : found);
}

absl::Status RankShim::Fail(const absl::Status& status) {
  const absl::Status named = NameRole(status, role());
  maker_->Abort(named);
  Abort(named);
  return named;
}

void RankShim::Cancel() {
  const absl::Status cancelled = absl::CancelledError("cancelled");
  maker_->Cancel();
  maker_->Abort(cancelled);
  Abort(NameRole(cancelled, role()));
  source_->Cancel();
}

void RankShim::Abort(const absl::Status& reason) {
  for (const auto* communicator :
       {&options_.communicator, &options_.tensor_communicator}) {
    if (*communicator != nullptr) (*communicator)->Abort(reason);
  }
}

uint32_t DefaultBatchesHeld(const v1::Job& job) {
  uint32_t depth = 1;
  for (const v1::Job::ModuleSize& module : job.modules()) {
    depth = std::max(depth, GetLayout(module).pp);
  }
  return std::max(depth + 2, 4u);
}

}  // namespace ballast
