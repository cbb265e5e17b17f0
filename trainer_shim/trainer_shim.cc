#include "trainer_shim/trainer_shim.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/attach_all.h"
#include "common/status_macros.h"
#include "proto/module.h"
#include "proto/timing.pb.h"
#include "trainer_shim/job_shape.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<TrainerShim>> TrainerShim::Create(
    Options options) {
  std::vector<std::unique_ptr<LoaderClient>> clients;
  for (const std::string& address : options.servers) {
    clients.push_back(LoaderClient::Create(address));
  }
  return Create(std::move(options), std::move(clients));
}

absl::StatusOr<std::unique_ptr<TrainerShim>> TrainerShim::Create(
    Options options, std::vector<std::unique_ptr<LoaderClient>> clients) {
  std::unique_ptr<TrainerShim> shim(
      new TrainerShim(std::move(options), std::move(clients)));
  if (absl::Status status = shim->Open(); !status.ok()) {
    return shim->Fail(status);
  }
  return shim;
}

TrainerShim::TrainerShim(Options options,
                         std::vector<std::unique_ptr<LoaderClient>> clients)
    : role_(options.role),
      options_(std::move(options)),
      clients_(std::move(clients)) {}

TrainerShim::~TrainerShim() = default;

absl::Status TrainerShim::Open() {
  std::vector<LoaderClient*> servers;
  for (const auto& client : clients_) servers.push_back(client.get());
  BALLAST_ASSIGN_OR_RETURN(attached_,
                           AttachAll(servers, role_, options_.fingerprint));
  BALLAST_ASSIGN_OR_RETURN(const JobShape shape, ShapeOf(job(), role_));
  BALLAST_RETURN_IF_ERROR(CheckCommunicator(shape));
  assembler_ = std::make_unique<BatchAssembler>(
      role_, shape, options_.pixel_type, options_.normalisation,
      options_.communicator.get());

  FailoverOptions failover = options_.failover;
  failover.seed +=
      static_cast<uint64_t>(role_.module()) << 32 | role_.dp_rank();

  ScheduleSource::Options schedules;
  schedules.failover = failover;
  schedules.fingerprint = fingerprint().hash();
  schedules.clock = options_.clock;
  schedules_ = std::make_unique<ScheduleSource>(servers, schedules);

  BatchStream::Options stream;
  stream.request.role = role_;
  stream.request.step = options_.start_step;
  stream.request.steps = options_.steps;
  stream.request.fingerprint = fingerprint().hash();
  stream.request.max_bytes = options_.max_bytes;
  stream.clock = options_.clock;
  stream.failover = failover;
  stream.servers = ServerNames(servers);
  const auto connect = [servers](size_t server, const FetchRequest& request) {
    return servers[server]->OpenPull(request);
  };
  BALLAST_ASSIGN_OR_RETURN(stream_, BatchStream::Create(connect, stream));
  return absl::OkStatus();
}

absl::Status TrainerShim::CheckCommunicator(const JobShape& shape) const {
  if (!shape.exchanges()) return absl::OkStatus();
  const Communicator* communicator = options_.communicator.get();
  if (communicator == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("delivery `exchange` over ", shape.dp,
                     " ranks needs a communicator; none was given"));
  }
  if (communicator->rank() != role_.dp_rank() ||
      communicator->size() != shape.dp) {
    return absl::InvalidArgumentError(
        absl::StrCat("the communicator is rank ", communicator->rank(), " of ",
                     communicator->size(), ", wanted rank ", role_.dp_rank(),
                     " of ", shape.dp));
  }
  return absl::OkStatus();
}

absl::StatusOr<const PackedBatch*> TrainerShim::Next() {
  if (!end_.ok()) return end_;
  schedule_ = nullptr;
  absl::StatusOr<std::unique_ptr<FetchedBlock>> block = stream_->Next();
  if (absl::IsOutOfRange(block.status())) return end_ = block.status();
  absl::StatusOr<const PackedBatch*> batch =
      block.ok() ? Assemble(**block) : block.status();
  if (!batch.ok()) return end_ = Fail(batch.status());
  return batch;
}

absl::StatusOr<const PackedBatch*> TrainerShim::Assemble(
    const FetchedBlock& block) {
  BALLAST_ASSIGN_OR_RETURN(schedule_, schedules_->Get(block.step()));
  return assembler_->Assemble(*schedule_, block.micro_batch(), block.bytes());
}

absl::Status TrainerShim::ReportTiming(uint64_t step, uint32_t micro_batch,
                                       double milliseconds) {
  v1::StepTiming timing;
  *timing.mutable_role() = role_;
  timing.set_step(step);
  timing.set_micro_batch(micro_batch);
  timing.set_milliseconds(milliseconds);
  absl::Status status;
  for (const auto& client : clients_) {
    status = client->Report({timing}, fingerprint().hash());
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      break;
    }
  }
  return status;
}

absl::Status TrainerShim::Fail(const absl::Status& status) {
  // Only the stream's OUT_OF_RANGE is the end of the steps.
  const absl::StatusCode code =
      absl::IsOutOfRange(status) ? absl::StatusCode::kInternal : status.code();
  const absl::Status named(
      code, absl::StrCat(ModuleName(role_.module()), " rank ", role_.dp_rank(),
                         ": ", status.message()));
  if (options_.communicator != nullptr) options_.communicator->Abort(named);
  return named;
}

void TrainerShim::Cancel() {
  if (options_.communicator != nullptr) {
    options_.communicator->Abort(
        absl::CancelledError(absl::StrCat(ModuleName(role_.module()), " rank ",
                                          role_.dp_rank(), " was cancelled")));
  }
  schedules_->Cancel();
  stream_->Cancel();
}

}  // namespace ballast
