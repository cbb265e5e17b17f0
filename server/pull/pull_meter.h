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

// Counts and times one Pull, and keeps its place on the board of clients.
// Thread-compatible.
class PullMeter {
 public:
  // Either may be null, and then is not told. Neither is owned. `peer`: the
  // client's connection.
  PullMeter(PullInstruments* instruments, ClientBoard* board, std::string peer)
      : instruments_(instruments), board_(board) {
    client_.peer = std::move(peer);
  }

  // Its stream is open.
  void Opened(const v1::PullRequest::Open& open);
  // The stream has no block yet for the client, which holds `held` bytes of
  // others; may be said again.
  void WaitsForBlock(uint64_t held);
  // The stream has handed out a block.
  void GotBlock(const BlockId& block);
  // The client has no room for it, of which it holds `held` bytes; may be said
  // again.
  void HoldsBack(uint64_t held);
  // The next message of the block goes out, which may be its first.
  void Sends(const v1::PullResponse& message, uint64_t held);
  // It is written, and so is the whole block, or is not.
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
  std::optional<Time> waits_since_;            // for a block
  Time built_;                                 // when the block was handed out
  std::optional<Time> sent_since_;             // its first message
};

}  // namespace ballast

#endif  // BALLAST_SERVER_PULL_PULL_METER_H_
