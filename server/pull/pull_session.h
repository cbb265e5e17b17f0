#ifndef BALLAST_SERVER_PULL_PULL_SESSION_H_
#define BALLAST_SERVER_PULL_PULL_SESSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"
#include "server/delivery/arena.h"
#include "server/delivery/block.h"

namespace ballast {

// How many bytes of blocks a client has room for. Plain values.
class CreditWindow {
 public:
  // `allowance`: Open.credit.
  explicit CreditWindow(uint64_t allowance) : allowance_(allowance) {}

  // Whether a block of `bytes` may begin: the unspent credit covers it, or the
  // client holds nothing at all.
  bool MayBegin(uint64_t bytes) const;
  // A block of `bytes` goes to the client, in chunks or lent in place.
  void Begin(uint64_t bytes) { sent_ += bytes; }
  void Lend(uint64_t bytes) { lent_ += bytes; }

  // The client has let go of `bytes` of those that were sent. Errors:
  // INVALID_ARGUMENT when that is more than it was sent.
  absl::Status Return(uint64_t bytes);
  // Of a block that was lent.
  void ReturnLent(uint64_t bytes) { lent_ -= bytes; }

  // Bytes that the client holds or is being sent.
  uint64_t held() const { return sent_ + lent_; }

 private:
  uint64_t allowance_;
  uint64_t sent_ = 0;
  uint64_t lent_ = 0;
};

// The next message to a client. A chunk's data are not in `message`, but the
// bytes `chunk` of `block`, which is to be kept until they are sent.
struct OutgoingMessage {
  uint32_t lane = 0;  // 0: the Pull itself
  v1::PullResponse message;
  std::shared_ptr<const Block> block;
  absl::Span<const uint8_t> chunk;
};

// The protocol of one Pull without gRPC: which message follows from the
// requests and blocks so far. Holds the blocks that are lent to the client
// until it lets go of them, or the session ends. Thread-compatible.
class PullSession {
 public:
  // `server`: this server's fingerprint. `arena`: its shared memory, or null;
  // is not owned.
  PullSession(const v1::Fingerprint& server, const ArenaIdentity* arena)
      : server_(server), arena_(arena) {}

  // Takes the client's next message. Errors: INVALID_ARGUMENT (no Open first, a
  // second Open, more credit than was spent, a block that it does not hold, a
  // Mapped that was not asked for or has another nonce, too many lanes or no
  // ticket for them, a Join, which is no message of a session),
  // FAILED_PRECONDITION
  // (fingerprint).
  absl::Status OnRequest(const v1::PullRequest& request);

  // What the client asked for; null before it has.
  const v1::PullRequest::Open* open() const {
    return open_.has_value() ? &*open_ : nullptr;
  }

  // Over how many lanes chunks go: at least 1.
  uint32_t lanes() const { return lanes_; }

  // Whether the next block is wanted: opened and not ended, the client has said
  // whether it has the arena, and no block is in hand.
  bool WantsBlock() const;
  // `block` is the one that follows.
  void OnBlock(std::unique_ptr<Block> block) { block_ = std::move(block); }

  // The next message; nothing when no block is in hand, the credit does not
  // cover it, or the client must speak first. A block is let go of with its
  // last chunk.
  std::optional<OutgoingMessage> NextMessage();

  // Whether nothing is sent before the client says something: that it has the
  // arena, or that it has room for the block in hand.
  bool WaitsForClient() const;

  // Whether some of a block's messages have been given out, and not all.
  bool MidBlock() const { return begun_; }
  // Bytes of blocks that the client holds or is being sent.
  uint64_t held() const { return credit_.held(); }

  // No block follows; the client is told `status` at once where it still holds
  // lent blocks, and otherwise by the end of the call.
  void OnEnd(absl::Status status);
  // Whether that, or a Stop of the client, has been; the status then.
  const std::optional<absl::Status>& end() const { return end_; }
  // Lent blocks that the client has not let go of.
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
  uint64_t sent_ = 0;   // bytes of block_, with begun_
  uint32_t lanes_ = 1;
  uint32_t next_lane_ = 0;                           // of the next chunk
  std::map<uint64_t, std::shared_ptr<Block>> lent_;  // by generation
  std::optional<absl::Status> end_;
  bool end_is_owed_ = false;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_PULL_SESSION_H_
