#include "client/pull_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"

namespace ballast {

// gRPC never runs a reaction inside the call that starts its operation, so
// operations are started, and the hold is let go, under mutex_.

std::unique_ptr<PullStream> PullStream::Open(v1::LoaderService::Stub* stub,
                                             const FetchRequest& request) {
  std::unique_ptr<PullStream> stream(new PullStream);
  v1::PullRequest::Open& open = *stream->request_.mutable_open();
  *open.mutable_role() = request.role;
  open.set_step(request.step);
  open.set_micro_batch(request.micro_batch);
  open.set_steps(request.steps);
  open.set_fingerprint(request.fingerprint);
  open.set_credit(request.max_bytes);

  MutexLock lock(&stream->mutex_);
  stream->writing_ = true;
  stub->async()->Pull(&stream->context_, stream.get());
  stream->StartWrite(&stream->request_);
  stream->AddHold();  // until Close
  stream->StartCall();
  return stream;
}

absl::Status PullStream::Read(v1::PullResponse* message) {
  MutexLock lock(&mutex_);
  if (!closed_) {
    reading_ = true;
    StartRead(&response_);
    while (reading_) changed_.Wait(&mutex_);
    if (read_ok_ && !cancelled_) {
      message->Swap(&response_);
      return absl::OkStatus();
    }
    Close();
  }
  while (!done_) changed_.Wait(&mutex_);
  return EndStatus();
}

void PullStream::Grant(uint64_t bytes) {
  MutexLock lock(&mutex_);
  credit_ += bytes;
  if (!writing_ && !closed_) WriteCredit();
}

void PullStream::Cancel() {
  MutexLock lock(&mutex_);
  if (done_) return;
  cancelled_ = true;
  context_.TryCancel();
  Close();
}

void PullStream::CancelAndWait() {
  Cancel();
  MutexLock lock(&mutex_);
  while (!done_) changed_.Wait(&mutex_);
}

void PullStream::OnReadDone(bool ok) {
  MutexLock lock(&mutex_);
  reading_ = false;
  read_ok_ = ok;
  changed_.NotifyAll();
}

void PullStream::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  writing_ = false;
  if (ok && credit_ > 0 && !closed_) WriteCredit();
}

void PullStream::OnDone(const grpc::Status& status) {
  MutexLock lock(&mutex_);
  status_ = FromGrpcStatus(status);
  done_ = true;
  changed_.NotifyAll();
}

void PullStream::Close() {
  if (closed_) return;
  closed_ = true;
  RemoveHold();
}

void PullStream::WriteCredit() {
  request_.mutable_credit()->set_bytes(std::exchange(credit_, 0));
  writing_ = true;
  StartWrite(&request_);
}

absl::Status PullStream::EndStatus() const {
  if (cancelled_) return absl::CancelledError("the pull was cancelled");
  if (status_.ok()) {
    return absl::OutOfRangeError("the server has ended the stream");
  }
  // A server that is shut down cancels what it serves; that is no wish of ours.
  if (status_.code() == absl::StatusCode::kCancelled) {
    return absl::UnavailableError(
        absl::StrCat("the server cancelled the pull: ", status_.message()));
  }
  return status_;
}

}  // namespace ballast
