#ifndef BALLAST_SERVER_PULL_PULL_METER_H_
#define BALLAST_SERVER_PULL_PULL_METER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "proto/loader_service.pb.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/stream_progress.h"
#include "server/monitor/client_board.h"

namespace ballast {

// Counts and times one Pull, and keeps its entry on the board of clients.
// Thread-compatible.
class PullMeter {
 public:
  // `instruments` and `board` may be null and are not owned. `peer` is the
  // client's connection.
  PullMeter(PullInstruments* instruments, ClientBoard* board, std::string peer)
      : instruments_(instruments), board_(board) {
    client_.peer = std::move(peer);
  }

  // The Pull's stream is open.
  void Opened(const v1::PullRequest::Open& open);
  // The stream has no block yet for the client, which holds `held` bytes of
  // others. May be repeated.
  void WaitsForBlock(uint64_t held);
  // The stream has handed out a block.
  void GotBlock(const BlockId& block);
  // The client, which holds `held` bytes, has no room for the block. May be
  // repeated.
  void HoldsBack(uint64_t held);
  // The next message of the block is being sent; it may be the first.
  void Sends(const v1::PullResponse& message, uint64_t held);
  // The message has been written. `whole_block`: it was the block's last.
  void Wrote(bool whole_block);
  // The stream is closed.
  void Ended() { entry_.reset(); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  void Enter(ClientBoard::State state, Time now);

  PullInstruments* const instruments_;
  ClientBoard* const board_;
  ClientBoard::Client client_;
  std::unique_ptr<ClientBoard::Entry> entry_;  // while the stream is open
  std::optional<Time> waits_since_;  // since when it waits for a block
  Time built_;                       // when the block was handed out
  std::optional<Time> sent_since_;   // when its first message went out
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_PULL_METER_H_
