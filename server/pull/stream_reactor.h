#ifndef BALLAST_SERVER_PULL_STREAM_REACTOR_H_
#define BALLAST_SERVER_PULL_STREAM_REACTOR_H_

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/grpc_status.h"
#include "common/mutex.h"

namespace ballast {

// A streaming call on the server's side: one write at a time, one end. `Base`
// is gRPC's reactor of the call, `Response` its message.
//
// gRPC never runs a reaction inside the call that starts its operation, so
// operations are started under mutex_. No other lock is taken under mutex_:
// Write, End and Read may be called with any lock held. They must not be called
// once OnDone has run, which comes after every other reaction.
template <typename Base, typename Response>
class StreamReactor : public Base {
 public:
  // Sends `response`; OnWritten follows. If the call has ended, drops it
  // without OnWritten. One write at a time.
  void Write(Response response) {
    MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    response_ = std::move(response);
    writing_ = true;
    this->StartWrite(&response_);
  }

  // Ends the call with `status` once no write is in progress. Only the first
  // End counts.
  void End(absl::Status status) {
    MutexLock lock(&mutex_);
    EndLocked(std::move(status));
  }

  // Reads the client's next message into `request`, unless the call has ended.
  template <typename Request>
  void Read(Request* request) {
    MutexLock lock(&mutex_);
    if (!end_.has_value()) this->StartRead(request);
  }

  bool ended() const {
    MutexLock lock(&mutex_);
    return end_.has_value();
  }

  void OnWriteDone(bool ok) final {
    response_.Clear();  // frees the memory that was sent
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) EndLocked(Left());
      if (end_.has_value()) FinishLocked();
    }
    OnWritten();
  }
  void OnCancel() final { End(Left()); }

 protected:
  // Called when a write is done and the next may start; the call may have
  // ended. Runs with no lock held, on one thread at a time.
  virtual void OnWritten() = 0;

  // Called once, with the call's lock held, if the call ends during a write: it
  // is done only after that write, which a client that reads nothing prevents.
  virtual void OnEndDuringWrite() {}

  static absl::Status Left() { return absl::CancelledError("the client left"); }

 private:
  void EndLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (end_.has_value()) return;
    end_ = std::move(status);
    if (writing_) OnEndDuringWrite();
    FinishLocked();
  }
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    finished_ = true;
    this->Finish(ToGrpcStatus(*end_));
  }

  mutable Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  // Used by gRPC from StartWrite until OnWriteDone, then by OnWriteDone until
  // it has cleared writing_.
  Response response_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_STREAM_REACTOR_H_
