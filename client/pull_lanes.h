#ifndef BALLAST_CLIENT_PULL_LANES_H_
#define BALLAST_CLIENT_PULL_LANES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/pull_channel.h"
#include "client/pull_stream.h"
#include "common/mutex.h"

namespace ballast {

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

}  // namespace ballast

#endif  // BALLAST_CLIENT_PULL_LANES_H_
