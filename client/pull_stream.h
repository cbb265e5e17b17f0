#ifndef BALLAST_CLIENT_PULL_STREAM_H_
#define BALLAST_CLIENT_PULL_STREAM_H_

#include <cstdint>
#include <memory>

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "absl/status/status.h"
#include "client/batch_fetcher.h"
#include "common/mutex.h"
#include "proto/loader_service.grpc.pb.h"

namespace ballast {

// One Pull RPC: messages in, credit out. Thread-safe; Read is for one thread.
// gRPC's callback interface is used because there a write never blocks: credit
// is granted from wherever a block is destroyed, which may be the trainer's own
// thread.
class PullStream final
    : private grpc::ClientBidiReactor<v1::PullRequest, v1::PullResponse> {
 public:
  // Opens the RPC. `stub` need not outlive it.
  static std::unique_ptr<PullStream> Open(v1::LoaderService::Stub* stub,
                                          const FetchRequest& request);

  // Blocks until the next message is there. Errors: OUT_OF_RANGE (the server
  // has ended the stream with OK), CANCELLED (by Cancel), UNAVAILABLE (the
  // server went away or cancelled), or the server's. An error is final.
  absl::Status Read(v1::PullResponse* message);

  // Lets the server send so many bytes more. Never blocks; without effect once
  // the stream has ended.
  void Grant(uint64_t bytes);

  // Ends a Read that is blocking, and every later one. Never blocks.
  void Cancel();

  // Cancels, then blocks until gRPC is done with the stream; so does the
  // destructor, which must not run on one of gRPC's threads: where it lets go
  // of the last reference to the channel, gRPC waits for those threads to end.
  void CancelAndWait();
  ~PullStream() override { CancelAndWait(); }

 private:
  PullStream() = default;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // No operation is started from outside a reaction from here on. Idempotent.
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteCredit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status EndStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::ClientContext context_;
  // Whoever has an operation under way owns the message that it uses.
  v1::PullRequest request_;
  v1::PullResponse response_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_ok_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  // Granted, and not yet in a message.
  uint64_t credit_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_PULL_STREAM_H_
