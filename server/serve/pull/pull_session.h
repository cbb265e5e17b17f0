#ifndef BALLAST_SERVER_SERVE_PULL_PULL_SESSION_H_
#define BALLAST_SERVER_SERVE_PULL_PULL_SESSION_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"
#include "server/delivery/arena.h"
#include "server/delivery/block.h"

namespace ballast {

// Counts the bytes of blocks that a client holds against its allowance. Plain
// values.
class CreditWindow {
 public:
  // `allowance` is Open.credit.
  explicit CreditWindow(uint64_t allowance) : allowance_(allowance) {}

  // Returns whether a block of `bytes` may begin: the unspent credit covers it,
  // or the client holds nothing.
  bool MayBegin(uint64_t bytes) const;
  // Records that a block of `bytes` goes to the client: in chunks, or lent in
  // place.
  void Begin(uint64_t bytes) { sent_ += bytes; }
  void Lend(uint64_t bytes) { lent_ += bytes; }

  // Records that the client has released `bytes` of blocks that were sent.
  // Errors: INVALID_ARGUMENT (more than it was sent).
  absl::Status Return(uint64_t bytes);
  // Records that the client has released a lent block of `bytes`.
  void ReturnLent(uint64_t bytes) { lent_ -= bytes; }

  // Bytes that the client holds or is being sent.
  uint64_t held() const { return sent_ + lent_; }

 private:
  uint64_t allowance_;
  uint64_t sent_ = 0;
  uint64_t lent_ = 0;
};

// The next message to a client. A chunk's data is not in `message`: it is the
// bytes `chunk` of `block`, which must be kept until they are sent.
struct OutgoingMessage {
  uint32_t lane = 0;  // 0: the Pull itself
  v1::PullResponse message;
  std::shared_ptr<const Block> block;
  absl::Span<const uint8_t> chunk;
};

// The protocol of one Pull without gRPC: decides the next message from the
// requests and blocks so far. Holds the blocks that are lent to the client
// until it releases them or the session ends. Thread-compatible.
class PullSession {
 public:
  // `server` is this server's fingerprint. `arena` is its shared memory, or
  // null; not owned.
  PullSession(const v1::Fingerprint& server, const ArenaIdentity* arena)
      : server_(server), arena_(arena) {}

  // Takes the client's next message. Errors: INVALID_ARGUMENT (no Open first, a
  // second Open, more credit than was spent, a block that the client does not
  // hold, a Mapped that was not requested or has another nonce, a share without
  // parts or with too many, too many lanes or no ticket for them, a Join, which
  // opens a lane and not a session), FAILED_PRECONDITION (fingerprint).
  absl::Status OnRequest(const v1::PullRequest& request);

  // The client's Open; null before it has come.
  const v1::PullRequest::Open* open() const {
    return open_.has_value() ? &*open_ : nullptr;
  }

  // Number of lanes that carry chunks; at least 1.
  uint32_t lanes() const { return lanes_; }

  // Returns whether the next block is wanted: the session is open and has not
  // ended, the client has said whether it has mapped the arena, and the last
  // block taken has been sent.
  bool WantsBlock() const;
  // Takes `block`, which must follow the previous one.
  void OnBlock(std::unique_ptr<Block> block) { block_ = std::move(block); }

  // The next message; nullopt if there is no block to send, the credit does not
  // cover it, or the client must speak first. Releases a block with its last
  // chunk.
  std::optional<OutgoingMessage> NextMessage();

  // Returns whether the client must speak before anything is sent: say that it
  // has mapped the arena, or grant credit for the block to be sent.
  bool WaitsForClient() const;

  // Returns whether some but not all of a block's messages have been returned.
  bool MidBlock() const { return begun_; }
  // Bytes of blocks that the client holds or is being sent.
  uint64_t held() const { return credit_.held(); }

  // Records that no block follows. If the client still holds lent blocks, a
  // message carries `status` to it; otherwise the end of the call does.
  void OnEnd(absl::Status status);
  // The status after OnEnd or the client's Stop; nullopt before.
  const std::optional<absl::Status>& end() const { return end_; }
  // The number of lent blocks that the client has not released.
  size_t lent() const { return lent_.size(); }

 private:
  enum class Handshake { kNotOffered, kToOffer, kOffered, kDone };

  absl::Status OnOpen(const v1::PullRequest::Open& open);
  absl::Status OnCredit(const v1::PullRequest::Credit& credit);
  absl::Status OnMapped(const v1::PullRequest::Mapped& mapped);
  v1::PullResponse LendBlock();

  const v1::Fingerprint server_;
  const ArenaIdentity* const arena_;
  std::optional<v1::PullRequest::Open> open_;
  Handshake handshake_ = Handshake::kNotOffered;
  bool mapped_ = false;
  CreditWindow credit_{0};
  std::shared_ptr<Block> block_;
  bool begun_ = false;  // block_'s Begin has been sent
  uint64_t sent_ = 0;   // bytes of block_, if begun_
  uint32_t lanes_ = 1;
  uint32_t next_lane_ = 0;                           // for the next chunk
  std::map<uint64_t, std::shared_ptr<Block>> lent_;  // by generation
  std::optional<absl::Status> end_;
  bool end_is_owed_ = false;
};

// Encodes and decodes the messages of a Pull as the bytes that gRPC carries.

// Encodes without copying: gRPC sends a chunk's data from the block, holds the
// block until it is sent, and releases it on any of its threads.
grpc::ByteBuffer EncodeResponse(OutgoingMessage message);

// Parses a client's message. Errors: INVALID_ARGUMENT (not a PullRequest).
absl::StatusOr<v1::PullRequest> DecodeRequest(grpc::ByteBuffer bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_PULL_PULL_SESSION_H_
