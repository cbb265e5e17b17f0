#ifndef BALLAST_PROTO_SCHEDULE_SPREAD_H_
#define BALLAST_PROTO_SCHEDULE_SPREAD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/schedule.pb.h"

namespace ballast {

// Spreads the blocks of one stream over several servers: a pure function names
// the server of each block, so that nothing dispatches and nobody talks.
//
// Each block has a place on a circle of 2^64. Blocks that follow one another
// are far apart there (multiples of the golden ratio), so a server with a part
// of the circle makes that part of any few blocks in a row. When a server
// leaves, its part alone is divided among the others. When it returns, it gets
// back what it had. A new server takes its part from all others alike.

// A part of the circle, and the first block that it counts for.
struct SharePart {
  uint64_t first = 0;
  uint64_t last = 0;  // included
  uint64_t step = 0;
  uint32_t micro_batch = 0;
};

// The blocks of a stream that one server makes.
struct BlockShare {
  // Most parts of a share in a message.
  static constexpr size_t kMaxParts = 1024;

  // Micro-batches of a usual step.
  uint64_t stride = 1;
  // The place of step 0, micro-batch 0.
  uint64_t offset = 0;
  std::vector<SharePart> parts;

  uint64_t PlaceOf(uint64_t step, uint32_t micro_batch) const;
  bool Owns(uint64_t step, uint32_t micro_batch) const;
};

// A server among those that a stream is spread over.
struct SpreadServer {
  // Blocks that it makes in the time in which another makes one: its
  // processors. 1 to 65,536.
  uint32_t weight = 1;
  bool present = true;
};

// A part of the circle and the server, by its number, that makes its blocks.
struct CircleRange {
  uint64_t first = 0;
  uint64_t last = 0;  // included
  size_t server = 0;
};

// Divides the circle among the servers that are present, by weight, in
// ascending order of place. Empty if none is present. Pure:
//   - one that leaves or returns moves its own part alone
//   - one that is added at the end takes from each other server alike
std::vector<CircleRange> DivideCircle(absl::Span<const SpreadServer> servers);

// The offset of a role: ranks begin at different servers.
uint64_t CircleOffset(const v1::Role& role);

// The numbers of the servers in the order in which a role prefers them: it uses
// the first few that serve. Each role has the same order at any time, roles are
// even over servers, and one server more or less changes at most one of the
// first few.
std::vector<size_t> PreferServers(const v1::Role& role,
                                  absl::Span<const std::string> names);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_SPREAD_H_
