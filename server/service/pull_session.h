#ifndef BALLAST_SERVER_SERVICE_PULL_SESSION_H_
#define BALLAST_SERVER_SERVICE_PULL_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"
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
  void Begin(uint64_t bytes) { held_ += bytes; }

  // The client has let go of `bytes`. Errors: INVALID_ARGUMENT when that is
  // more than it was sent.
  absl::Status Return(uint64_t bytes);

  // Bytes that the client holds or is being sent.
  uint64_t held() const { return held_; }

 private:
  uint64_t allowance_;
  uint64_t held_ = 0;
};

// The protocol of one Pull without gRPC: which message follows from the
// requests and blocks so far. Thread-compatible.
class PullSession {
 public:
  // `server`: this server's fingerprint.
  explicit PullSession(const v1::Fingerprint& server) : server_(server) {}

  // Takes the client's next message. Errors: INVALID_ARGUMENT (no Open first, a
  // second Open, more credit than was spent), FAILED_PRECONDITION
  // (fingerprint).
  absl::Status OnRequest(const v1::PullRequest& request);

  // What the client asked for; null before it has.
  const v1::PullRequest::Open* open() const {
    return open_.has_value() ? &*open_ : nullptr;
  }

  // Whether the next block is wanted: opened, and none in hand.
  bool WantsBlock() const { return open_.has_value() && block_ == nullptr; }
  // `block` is the one that follows.
  void OnBlock(std::unique_ptr<Block> block) { block_ = std::move(block); }

  // Fills the next message. False when there is none: no block is in hand, or
  // the credit does not cover it. A block is destroyed with its last message.
  bool NextMessage(v1::PullResponse* message);

  // Whether a block is in hand that has not begun and must wait for credit.
  bool WaitsForCredit() const;

 private:
  absl::Status OnOpen(const v1::PullRequest::Open& open);

  const v1::Fingerprint server_;
  std::optional<v1::PullRequest::Open> open_;
  CreditWindow credit_{0};
  std::unique_ptr<Block> block_;
  bool begun_ = false;  // block_'s Begin has been sent
  uint64_t sent_ = 0;   // bytes of block_, with begun_
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_PULL_SESSION_H_
