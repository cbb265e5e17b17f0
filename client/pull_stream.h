#ifndef BALLAST_CLIENT_PULL_STREAM_H_
#define BALLAST_CLIENT_PULL_STREAM_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include "absl/status/status.h"
#include "client/batch_fetcher.h"
#include "common/mutex.h"
#include "proto/loader_service.pb.h"

namespace ballast {

// The first message of a Pull, without lanes.
v1::PullRequest OpenRequest(const FetchRequest& request);

// One Pull RPC: messages in, credit out. Thread-safe; Read is for one thread.
// Uses gRPC's callback interface, where a write never blocks: the thread that
// destroys a block grants credit, and may be the trainer's. Messages are read
// as bytes, so that chunks are not copied to be parsed (pull_wire.h).
//
// Blocks that the server has lent in its shared memory are unchanged while the
// RPC lives, so it is kept until all are returned: a cancelled stream asks the
// server to stop and ends with the last of them.
class PullStream final
    : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Opens the RPC with its first message.
  static std::unique_ptr<PullStream> Open(
      const std::shared_ptr<grpc::Channel>& channel,
      const v1::PullRequest& first);

  // Blocks until the next message is there. Errors: OUT_OF_RANGE (the server
  // has ended the stream with OK), CANCELLED (by Cancel), UNAVAILABLE (the
  // server went away or cancelled), or the server's. An error is final.
  absl::Status Read(grpc::ByteBuffer* message);

  // Lets the server send `bytes` more. Never blocks; no effect once the stream
  // has ended.
  void Grant(uint64_t bytes);

  // Answers the server's Arena: the nonce of the mapping, or nothing.
  void SendMapped(const std::string& nonce);

  // A block has been lent, or has been returned, which grants its bytes again.
  // Never block.
  void Lend();
  void Return(uint64_t generation);

  // Ends a Read that is blocking, and every later one. Never blocks.
  void Cancel();

  // Blocks until gRPC is done with the stream, after Cancel. Returns at once
  // while blocks are lent: the stream must then be kept until they are
  // returned.
  void AwaitDoneUnlessLent();

  // Ends the RPC, even while blocks are lent, and blocks until gRPC is done
  // with it. Must not run on one of gRPC's threads: where it drops the last
  // reference to the channel, gRPC waits for those threads to end.
  ~PullStream() override;

 private:
  PullStream() = default;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // Reads the next message unless enough are there.
  void ReadAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes what is pending, unless a thread in Read can: a write costs a system
  // call and more, and the caller may be a trainer.
  void WriteOrHandOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes what is pending, if anything, unless a write is under way.
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartWriteOf(const v1::PullRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From here on no operation is started outside a reaction. Idempotent.
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Close, and cancels the RPC.
  void BreakOff() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status EndStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::ClientContext context_;
  // The operation under way owns the message that it uses.
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool in_read_ ABSL_GUARDED_BY(mutex_) = false;  // and waits there
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_all_ ABSL_GUARDED_BY(mutex_) =
      false;  // there is no further message
  std::deque<grpc::ByteBuffer> received_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  // Pending, not yet in a message.
  uint64_t credit_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> returned_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> mapped_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t lent_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_PULL_STREAM_H_
