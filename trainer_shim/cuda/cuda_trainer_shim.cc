#include "trainer_shim/cuda/cuda_trainer_shim.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda_status.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<CudaTrainerShim>> CudaTrainerShim::Create(
    Options options) {
  absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> clients =
      ClientsOf(options.servers, options.security);
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
  watch_ = nullptr;  // looks at events of the feed's windows
  feed_ = nullptr;
}

absl::Status CudaTrainerShim::Open(
    std::vector<std::unique_ptr<LoaderClient>> clients) {
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaSetDevice(options_.device), "choosing the device"));
  BALLAST_ASSIGN_OR_RETURN(
      source_, RoleSource::Create(std::move(clients), options_.source));
  if (source_->shape().layout.pp > 1 || source_->shape().layout.cp > 1) {
    return absl::UnimplementedError(
        "pipeline and context parallelism are not built yet on GPUs");
  }
  DeviceCommunicator* communicator = options_.communicator.get();
  const bool there = communicator != nullptr;
  BALLAST_RETURN_IF_ERROR(CheckCommunicator(source_->shape(), role(),
                                            there ? communicator->rank() : 0,
                                            there ? communicator->size() : 0));
  BALLAST_ASSIGN_OR_RETURN(finding_, PinnedBuffer::Create(sizeof(Finding)));
  auto* finding = new (finding_.data()) Finding;
  BALLAST_ASSIGN_OR_RETURN(
      device_,
      WindowDevice::Create(source_->shape(), options_.pixel_type,
                           options_.normalisation, communicator, finding));
  for (Event& event : vacant_) {
    BALLAST_ASSIGN_OR_RETURN(event, Event::Create());
  }
  DeviceWatch::Options watch;
  watch.device = options_.device;
  watch.timeout = options_.timeout;
  watch_ = std::make_unique<DeviceWatch>(communicator, finding, watch);
  WindowFeed::Options feed;
  feed.device = options_.device;
  feed.pixel_type = options_.pixel_type;
  feed.max_bytes = options_.source.max_bytes;
  BALLAST_ASSIGN_OR_RETURN(feed_,
                           WindowFeed::Create(source_.get(), &regions_, feed));
  return absl::OkStatus();
}

absl::StatusOr<const DeviceBatch*> CudaTrainerShim::Next(cudaStream_t stream) {
  if (!end_.ok()) return end_;
  if (absl::Status status = watch_->status(); !status.ok()) {
    return end_ = Fail(status);
  }
  absl::StatusOr<const DeviceBatch*> batch = Advance(stream);
  if (absl::IsOutOfRange(batch.status())) return end_ = batch.status();
  if (!batch.ok()) {
    // Where the watch has seen why, that is the cause.
    const absl::Status seen = watch_->status();
    return end_ = Fail(seen.ok() ? batch.status() : seen);
  }
  return batch;
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
  absl::StatusOr<ReadyWindow*> window = feed_->Next();
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

absl::Status CudaTrainerShim::Fail(const absl::Status& status) {
  const absl::Status named = NameRole(status, options_.source.role);
  if (watch_ != nullptr) watch_->Abort(named);
  if (options_.communicator != nullptr) options_.communicator->Abort(named);
  return named;
}

void CudaTrainerShim::Cancel() {
  const absl::Status cancelled = absl::CancelledError("cancelled");
  if (feed_ != nullptr) feed_->Cancel();
  if (watch_ != nullptr) watch_->Abort(cancelled);
  if (options_.communicator != nullptr) {
    options_.communicator->Abort(NameRole(cancelled, options_.source.role));
  }
}

}  // namespace ballast
