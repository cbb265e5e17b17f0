#ifndef BALLAST_SERVER_SCHEDULE_GROUP_PLACEMENT_H_
#define BALLAST_SERVER_SCHEDULE_GROUP_PLACEMENT_H_

#include <cstdint>
#include <vector>

#include "proto/schedule.pb.h"
#include "server/schedule/balance.h"

namespace ballast {

// One module's ranks, and what it would move.
struct ModuleRanks {
  v1::Module module;
  uint32_t dp;  // divides the grid
  // The server that each rank reads through; empty when all share one.
  std::vector<uint32_t> server_of_rank;
};

// What a module's ranks have read.
struct ModuleShards {
  ModuleRanks ranks;
  std::vector<uint32_t> reader;  // per sample
  std::vector<uint64_t> bytes;   // per sample: its payload for the module
};

// A byte that moves between ranks of two servers counts as much as so many that
// move between ranks of one.
inline constexpr int64_t kBetweenServers = 4;

// Numbers the groups anew so that as few bytes as possible move from readers to
// owners, bytes between servers counted kBetweenServers times: the groups weigh
// what they weigh wherever they lie, so which rank owns which is free. Exact
// up to a grid of 512, and within 1/512 of what could stay in place beyond;
// the bytes of modules whose ranks span over 64 groups are not counted.
// The groups fill `slots` micro-batches of as many groups (the grid) each, one
// after the other; which slot a group lands in does not matter.
Groups PlaceGroups(Groups groups, uint32_t slots,
                   const std::vector<ModuleShards>& shards);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_GROUP_PLACEMENT_H_
