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

// One thing that a scripted connection does.
struct FakeBlock {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  std::vector<uint8_t> bytes;
  bool intact = true;
};
using FakeEvent = std::variant<FakeBlock, absl::Status>;

// A server that does what a test tells it to, behind the BatchFetcher seam.
// Each connection plays one script: blocks are delivered when the allowance
// covers them (or nothing of that connection is held), a status ends it, and
// after the last event Fetch blocks until it is cancelled. Thread-safe; blocks
// and fetchers may outlive it.
//
//   FakeBatchServer server;
//   server.AddConnection({FakeBlock{0, 0, bytes},
//   absl::UnavailableError("x")}); server.AddConnection({FakeBlock{0, 1,
//   bytes}, absl::OutOfRangeError("end")}); auto stream =
//   BatchStream::Create(server.connect(), {...});
class FakeBatchServer {
 public:
  void AddConnection(std::vector<FakeEvent> script);
  // The next connection fails with `status`.
  void AddFailedConnection(absl::Status status);

  // Connects to the scripts in the order in which they were added. A connection
  // without a script fails with INTERNAL.
  BatchStream::Connect connect();

  // What each connection so far asked for.
  std::vector<FetchRequest> requests() const;
  // Which server each was made to.
  std::vector<size_t> servers() const;
  // Of blocks that are alive, over all connections; and the most at any time.
  uint64_t held_bytes() const;
  uint64_t most_held_bytes() const;
  // Overwrites, as a server that gave its connection up may, every block
  // delivered so far: none of them is intact.
  void OverwriteBlocks();
  // Blocks delivered so far.
  int delivered() const;
  // Blocks until so many blocks have been delivered.
  void AwaitDelivered(int blocks);
  // Blocks until a Fetch is waiting for allowance, or after its script's end.
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
    int overwritten ABSL_GUARDED_BY(mutex) = 0;  // of these, the first so many
    // Those that a thread is inside Fetch of.
    std::set<const Fetcher*> fetching ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FAKE_BATCH_FETCHER_H_
