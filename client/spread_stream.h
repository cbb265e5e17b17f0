#ifndef BALLAST_CLIENT_SPREAD_STREAM_H_
#define BALLAST_CLIENT_SPREAD_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/batch_stream.h"

namespace ballast {

struct SpreadOptions {
  // `servers` are those known at the start, at least one.
  BatchStream::Options stream;
  // Blocks come from at most this many servers at once
  // (proto/schedule/spread.h). 1 to kMaxSpread.
  size_t most_servers = 4;
  // Micro-batches of a usual step.
  uint64_t stride = 1;
  // As SpreadServers::Options (client/spread_servers.h).
  std::function<absl::StatusOr<uint32_t>(size_t server)> ask;
  std::function<std::vector<std::string>()> list;
};

// The most servers that a stream may use: each takes two threads and a
// connection of the rank.
inline constexpr uint32_t kMaxSpread = 64;

// A role's blocks, in order, from several servers at once: each makes the
// blocks of its share of the circle (proto/schedule/spread.h), as a stream of
// its own. One that fails costs its blocks in the making, for which the others
// are asked; it is asked in the background whether it is back, and gets its
// share again then. A new server takes a share once it has answered. Shares are
// as large as the servers' weights.
//
// As BatchStream::Create, except that
//   - at most request.max_bytes of blocks are held over all servers; only the
//     next in order, while Next waits for it, may exceed this, so that neither
//     blocks fetched ahead nor those that the caller keeps can keep it out, and
//     one block of each server that is larger than all before it
//   - the errors of a failed server end the stream as Failover says, once no
//     server is left
absl::StatusOr<std::unique_ptr<BatchStream>> CreateSpreadStream(
    BatchStream::Connect connect, SpreadOptions options);

}  // namespace ballast

#endif  // BALLAST_CLIENT_SPREAD_STREAM_H_
