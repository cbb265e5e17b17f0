#ifndef BALLAST_SERVER_SERVE_PULL_STREAM_REACTOR_H_
#define BALLAST_SERVER_SERVE_PULL_STREAM_REACTOR_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

// The open calls of one kind of watch. Owns them until Forget.
// Thread-safe.
template <typename Call>
class WatchSet {
 public:
  using Calls = std::set<std::shared_ptr<Call>>;

  // Each call may keep a worker busy, so further ones are refused.
  static constexpr size_t kMaxOpen = 64;

  // Adds the call in any case. If not OK, the call must end with the returned
  // status: UNAVAILABLE after Drain, RESOURCE_EXHAUSTED beyond kMaxOpen. `what`
  // names the watched thing in messages.
  absl::Status Add(const std::shared_ptr<Call>& call, absl::string_view what) {
    MutexLock lock(&mutex_);
    const size_t open = open_.size();
    open_.insert(call);
    if (draining_) return Draining();
    if (open < kMaxOpen) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("this server already has ", kMaxOpen, " watchers of the ",
                     what, ", the most it allows; try another server"));
  }

  // Ends all calls, present and future, with UNAVAILABLE.
  void Drain() {
    {
      MutexLock lock(&mutex_);
      draining_ = true;
    }
    for (const auto& call : open()) call->End(Draining());
  }

  void Forget(const std::shared_ptr<Call>& call) {
    MutexLock lock(&mutex_);
    open_.erase(call);
  }

  Calls open() const {
    MutexLock lock(&mutex_);
    return open_;
  }

 private:
  static absl::Status Draining() {
    return absl::UnavailableError("the server is draining; ask another");
  }

  mutable Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  Calls open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_PULL_STREAM_REACTOR_H_
