#ifndef BALLAST_TESTS_FAKES_FAKE_BATCH_FETCHER_H_
#define BALLAST_TESTS_FAKES_FAKE_BATCH_FETCHER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "client/batch_stream.h"
#include "common/mutex.h"

namespace ballast {

// One event of a scripted connection.
struct FakeBlock {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  std::vector<uint8_t> bytes;
  bool intact = true;
};
using FakeEvent = std::variant<FakeBlock, absl::Status>;

// A scripted server behind the BatchFetcher interface. Each connection plays
// one script: a block is delivered when the allowance covers it (or nothing of
// that connection is held), a status ends the connection, and after the last
// event Fetch blocks until it is cancelled. Thread-safe; blocks and fetchers
// may outlive it.
//
//   FakeBatchServer server;
//   server.AddConnection(
//       {FakeBlock{0, 0, bytes}, absl::UnavailableError("x")});
//   server.AddConnection(
//       {FakeBlock{0, 1, bytes}, absl::OutOfRangeError("end")});
//   auto stream = BatchStream::Create(server.connect(), {...});
class FakeBatchServer {
 public:
  void AddConnection(std::vector<FakeEvent> script);
  // The next connection fails with `status`.
  void AddFailedConnection(absl::Status status);

  // Connects to the scripts in the order in which they were added. A connection
  // without a script fails with INTERNAL.
  BatchStream::Connect connect();

  // The request of each connection so far.
  std::vector<FetchRequest> requests() const;
  // The server of each connection so far.
  std::vector<size_t> servers() const;
  // Bytes of live blocks over all connections, and the maximum at any time.
  uint64_t held_bytes() const;
  uint64_t most_held_bytes() const;
  // Overwrites every block delivered so far, as a server may that has given its
  // connection up: none of them is intact afterwards.
  void OverwriteBlocks();
  // Blocks delivered so far.
  int delivered() const;
  // Waits until this many blocks have been delivered.
  void AwaitDelivered(int blocks);
  // Waits until a Fetch blocks, for allowance or after the end of its script.
  void AwaitBlockedFetch();

 private:
  class Fetcher;
  class Block;
  struct State {
    Mutex mutex;
    CondVar changed;
    std::deque<std::variant<std::vector<FakeEvent>, absl::Status>> scripts
        ABSL_GUARDED_BY(mutex);
    std::vector<FetchRequest> requests ABSL_GUARDED_BY(mutex);
    std::vector<size_t> servers ABSL_GUARDED_BY(mutex);
    uint64_t held ABSL_GUARDED_BY(mutex) = 0;
    uint64_t most_held ABSL_GUARDED_BY(mutex) = 0;
    int delivered ABSL_GUARDED_BY(mutex) = 0;
    int overwritten ABSL_GUARDED_BY(mutex) = 0;  // the first ones
    // Fetchers whose Fetch is running.
    std::set<const Fetcher*> fetching ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FAKE_BATCH_FETCHER_H_
