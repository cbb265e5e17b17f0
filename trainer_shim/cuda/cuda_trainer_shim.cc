#include "trainer_shim/cuda/cuda_trainer_shim.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<CudaTrainerShim>> CudaTrainerShim::Create(
    Options options) {
  absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> clients =
      ClientsOf(options.servers, options.security, options.streams);
  if (!clients.ok()) {
    return CudaTrainerShim(std::move(options)).Fail(clients.status());
  }
  return Create(std::move(options), *std::move(clients));
}

absl::StatusOr<std::unique_ptr<CudaTrainerShim>> CudaTrainerShim::Create(
    Options options, std::vector<std::unique_ptr<LoaderClient>> clients) {
  std::unique_ptr<CudaTrainerShim> shim(
      new CudaTrainerShim(std::move(options)));
  const absl::Status status = shim->Open(std::move(clients));
  if (!status.ok()) return shim->Fail(status);
  return shim;
}

CudaTrainerShim::CudaTrainerShim(Options options)
    : options_(std::move(options)) {}

CudaTrainerShim::~CudaTrainerShim() {
  // After the last step all ranks leave the communicator in good order. Before,
  // the others would wait for this one.
  if (!absl::IsOutOfRange(end_)) Cancel();
  // What was given to the device ends before the memory that it uses goes.
  if (device_ != nullptr) device_->stream().Synchronize().IgnoreError();
  watch_ = nullptr;  // looks at the feed's windows
  feed_ = nullptr;
}

absl::Status CudaTrainerShim::Open(
    std::vector<std::unique_ptr<LoaderClient>> clients) {
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaSetDevice(options_.device), "choosing the device"));
  options_.source.without_blocks = receives();
  BALLAST_ASSIGN_OR_RETURN(
      source_, RoleSource::Create(std::move(clients), options_.source));
  const auto end_of = [](const DeviceCommunicator* group) {
    return group == nullptr ? std::pair<uint32_t, uint32_t>(0, 0)
                            : std::pair(group->rank(), group->size());
  };
  DeviceCommunicator* communicator = options_.communicator.get();
  DeviceCommunicator* tensor = options_.tensor_communicator.get();
  const auto [tensor_rank, tensor_size] = end_of(tensor);
  BALLAST_RETURN_IF_ERROR(
      CheckTensorCommunicator(source_->shape(), tensor_rank, tensor_size));
  if (source_->has_blocks()) {
    const auto [rank, size] = end_of(communicator);
    BALLAST_RETURN_IF_ERROR(
        CheckCommunicator(source_->shape(), role(), rank, size));
  }
  BALLAST_ASSIGN_OR_RETURN(finding_, PinnedBuffer::Create(sizeof(Finding)));
  auto* finding = new (finding_.data()) Finding;
  BALLAST_ASSIGN_OR_RETURN(
      device_,
      DeviceStage::Create(source_->shape(), options_.pixel_type,
                           options_.normalisation, communicator, finding));
  for (Event& event : vacant_) {
    BALLAST_ASSIGN_OR_RETURN(event, Event::Create());
  }
  BatchStager::Options feed;
  feed.device = options_.device;
  feed.pixel_type = options_.pixel_type;
  feed.max_bytes = options_.source.max_bytes;
  BALLAST_ASSIGN_OR_RETURN(feed_,
                           BatchStager::Create(source_.get(), &regions_, feed));
  DeviceWatch::Options watch;
  watch.device = options_.device;
  watch.timeout = options_.timeout;
  watch.on_look = [feed = feed_.get()] { feed->NoteTimes(); };
  watch_ = std::make_unique<DeviceWatch>(
      std::vector<DeviceCommunicator*>{communicator, tensor}, finding, watch);
  return absl::OkStatus();
}

absl::StatusOr<const DeviceBatch*> CudaTrainerShim::Next(cudaStream_t stream) {
  if (!end_.ok()) return end_;
  if (receives()) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor rank ", options_.source.place.tp_rank,
                     " has its batches from tensor rank 0: it calls "
                     "ReceiveFromTensorPeer instead of Next"));
  }
  return Take(stream);
}

absl::Status CudaTrainerShim::SendToTensorPeers(cudaStream_t stream) {
  if (!end_.ok()) return end_;
  if (options_.tensor_communicator == nullptr || receives() ||
      current_ == nullptr) {
    return absl::FailedPreconditionError(
        "SendToTensorPeers is for tensor rank 0, with a tensor_communicator "
        "and after a Next that answered a batch");
  }
  const absl::Status sent = Broadcast(stream);
  return sent.ok() ? sent : End(sent);
}

absl::StatusOr<const DeviceBatch*> CudaTrainerShim::ReceiveFromTensorPeer(
    cudaStream_t stream) {
  if (!end_.ok()) return end_;
  if (!receives()) {
    return absl::FailedPreconditionError(
        "ReceiveFromTensorPeer is for tensor ranks other than 0 with a "
        "tensor_communicator; this one calls Next");
  }
  BALLAST_ASSIGN_OR_RETURN(const DeviceBatch* batch, Take(stream));
  const absl::Status received = Broadcast(stream);
  if (!received.ok()) return End(received);
  return batch;
}

absl::Status CudaTrainerShim::Broadcast(cudaStream_t stream) {
  return device_->Broadcast(current_slot_, options_.tensor_communicator.get(),
                            current_, stream);
}

absl::StatusOr<const DeviceBatch*> CudaTrainerShim::Take(cudaStream_t stream) {
  absl::Status seen = watch_->status();
  if (!seen.ok()) return End(seen);
  absl::StatusOr<const DeviceBatch*> batch = Advance(stream);
  if (!batch.ok()) return End(batch.status());
  return batch;
}

absl::Status CudaTrainerShim::End(const absl::Status& status) {
  if (absl::IsOutOfRange(status)) return end_ = status;
  // Where the watch has seen why, that is the cause.
  const absl::Status seen = watch_->status();
  return end_ = Fail(seen.ok() ? status : seen);
}

absl::StatusOr<const DeviceBatch*> CudaTrainerShim::Advance(
    cudaStream_t stream) {
  if (current_ != nullptr) {
    // The trainer has given `stream` all that reads the batch.
    BALLAST_RETURN_IF_ERROR(vacant_[current_slot_].Record(stream));
    feed_->Return(std::exchange(current_, nullptr));
  }
  if (next_ == nullptr) BALLAST_RETURN_IF_ERROR(LaunchNext());
  if (next_ == nullptr) return after_;
  current_ = std::exchange(next_, nullptr);
  current_slot_ = 1 - slot_;  // the one that was launched last
  BALLAST_RETURN_IF_ERROR(StreamWait(stream, current_->packed.get()));
  if (options_.overlap) BALLAST_RETURN_IF_ERROR(LaunchNext());
  return &current_->batch;
}

absl::Status CudaTrainerShim::LaunchNext() {
  if (!after_.ok()) return absl::OkStatus();
  absl::StatusOr<StagedBatch*> window = feed_->Next();
  if (!window.ok()) {
    // The batch before is good: this comes after it.
    after_ = window.status();
    return absl::OkStatus();
  }
  const DeviceBatch& batch = (*window)->batch;
  watch_->Begin(
      absl::StrCat("step ", batch.step, " micro-batch ", batch.micro_batch),
      &(*window)->packed);
  BALLAST_RETURN_IF_ERROR(device_->Launch(slot_, vacant_[slot_], *window));
  watch_->Given();
  next_ = *window;
  slot_ = 1 - slot_;
  return absl::OkStatus();
}

absl::Status CudaTrainerShim::ReportTiming(uint64_t step, uint32_t micro_batch,
                                           double milliseconds) {
  // Asking for events of another device than the current one makes a context on
  // the current one, which may be a neighbour's: that is left to the watch.
  int current = 0;
  if (cudaGetDevice(&current) == cudaSuccess && current == options_.device) {
    feed_->NoteTimes();
  }
  return source_->ReportTiming(step, micro_batch, milliseconds);
}

absl::Status CudaTrainerShim::Fail(const absl::Status& status) {
  const absl::Status named = NameRole(status, options_.source.role);
  if (watch_ != nullptr) watch_->Abort(named);
  Abort(named);
  return named;
}

void CudaTrainerShim::Cancel() {
  const absl::Status cancelled = absl::CancelledError("cancelled");
  if (feed_ != nullptr) feed_->Cancel();
  if (watch_ != nullptr) watch_->Abort(cancelled);
  Abort(NameRole(cancelled, options_.source.role));
}

void CudaTrainerShim::Abort(const absl::Status& reason) {
  for (const auto* communicator :
       {&options_.communicator, &options_.tensor_communicator}) {
    if (*communicator != nullptr) (*communicator)->Abort(reason);
  }
}

}  // namespace ballast
