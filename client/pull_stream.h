#ifndef BALLAST_CLIENT_PULL_STREAM_H_
#define BALLAST_CLIENT_PULL_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/batch_fetcher.h"
#include "client/pull_channel.h"
#include "common/mutex.h"
#include "proto/loader_service.pb.h"

namespace ballast {

// The first message of a Pull, without lanes.
v1::PullRequest OpenRequest(const FetchRequest& request);

// One Pull RPC: messages in, credit out. Thread-safe, but Read must be called
// from one thread. Uses gRPC's callback interface, in which a write never
// blocks: the thread that destroys a block grants credit, and that may be the
// trainer's thread. Messages are read as bytes, so that parsing does not copy
// chunks.
//
// Blocks that the server has lent in its shared memory stay unchanged while the
// RPC lives, so the RPC is kept until all are returned: a cancelled stream asks
// the server to stop, and ends when the last block is returned.
class PullStream final : private PullClientReactor {
 public:
  // Opens the RPC with its first message.
  static std::unique_ptr<PullStream> Open(PullChannel* channel,
                                          const v1::PullRequest& first);

  // Reads the next message; blocks until it has arrived. Errors are final:
  // OUT_OF_RANGE (the server has ended the stream with OK), CANCELLED (by
  // Cancel), UNAVAILABLE (the server went away or cancelled), or the server's.
  absl::Status Read(grpc::ByteBuffer* message);

  // The server's end of the connection, as gRPC names it. Known once Read has
  // returned a message.
  std::string peer() const { return rpc_->peer(); }

  // Lets the server send `bytes` more. Never blocks; no effect once the stream
  // has ended.
  void Grant(uint64_t bytes);

  // Answers the server's Arena message: the nonce of the mapping; empty if it
  // could not be mapped.
  void SendMapped(const std::string& nonce);

  // Notes that a block has been lent, or has been returned, which grants its
  // bytes again. Neither blocks.
  void Lend();
  void Return(uint64_t generation);

  // Ends a blocked Read, and every later one. Never blocks.
  void Cancel();

  // After Cancel: blocks until gRPC is done with the stream. Returns at once if
  // blocks are lent; the stream must then be kept until they are returned.
  void AwaitDoneUnlessLent();

  // Ends the RPC, even while blocks are lent, and blocks until gRPC is done
  // with it. Must not run on one of gRPC's threads: if it drops the last
  // reference to the channel, gRPC waits for those threads to end.
  ~PullStream() override;

 private:
  PullStream() = default;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // Starts reading the next message unless enough are queued.
  void ReadAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes what is pending, or leaves it to a thread in Read if there is one: a
  // write costs a system call and more, and the caller may be a trainer.
  void WriteOrHandOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes what is pending, if anything, unless a write is under way.
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendRequest(const v1::PullRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From now on no operation is started outside a reaction. Idempotent.
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Close, and cancels the RPC.
  void BreakOff() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status EndStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::unique_ptr<PullRpc> rpc_;
  // The operation under way owns the message that it uses.
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool in_read_ ABSL_GUARDED_BY(mutex_) = false;  // a thread waits in Read
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

// The further lanes of one Pull (PullRequest.Open.lanes): RPCs, each on its own
// connection, that carry chunks in turn with the Pull itself. Opened when the
// server first says that it uses them. Thread-safe, but Open and Read must be
// called from one thread.
class PullLanes {
 public:
  // `count`: lanes with the Pull itself, at least 1.
  explicit PullLanes(uint32_t count);

  uint32_t count() const { return count_; }
  // Random, so that it identifies this Pull.
  const std::string& ticket() const { return ticket_; }

  // Joins the lanes, one for each of `channels` (count() - 1), to the Pull;
  // call it once. Does not wait.
  void Open(const std::vector<std::shared_ptr<PullChannel>>& channels);
  bool open() const { return opened_; }

  // Reads the next message of lane 1 to count() - 1, as PullStream::Read.
  absl::Status Read(uint32_t lane, grpc::ByteBuffer* message);

  // Ends a blocked Read, and every later one.
  void Cancel();

 private:
  const uint32_t count_;
  const std::string ticket_;
  bool opened_ = false;
  Mutex mutex_;
  std::vector<std::unique_ptr<PullStream>> streams_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// Decodes the messages of a Pull from the bytes that gRPC carries.

// A message of the server. Move-only: pieces point into it.
struct PullMessage {
  // The data of a chunk, in pieces as received; empty for other messages.
  bool is_chunk = false;
  std::vector<absl::Span<const uint8_t>> chunk;
  // Any other message.
  v1::PullResponse message;

  // The memory of the pieces.
  std::vector<grpc::Slice> slices;
  std::unique_ptr<v1::PullResponse> parsed_chunk;
};

// Errors: INTERNAL (not a PullResponse).
absl::StatusOr<PullMessage> DecodeResponse(grpc::ByteBuffer bytes);

grpc::ByteBuffer EncodeRequest(const v1::PullRequest& request);

}  // namespace ballast

#endif  // BALLAST_CLIENT_PULL_STREAM_H_
