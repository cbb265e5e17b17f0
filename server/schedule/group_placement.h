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

// A byte that moves between ranks of two servers counts as much as so many that
// move between ranks of one.
inline constexpr int64_t kBetweenServers = 4;

// Numbers the groups anew so that as few bytes as possible move from readers to
// owners, bytes between servers counted kBetweenServers times: the groups weigh
// what they weigh wherever they lie, so which rank owns which is free. Exact
// up to a grid of 2,048, and within 1/512 of what could stay in place beyond;
// the bytes of modules whose ranks span over 64 groups are not counted.
//
// Sample i is read by rank i / (samples/grid) / (grid/dp) of each module, and
// `bytes[m][i]` is its payload for modules[m]. groups.size() is the grid.
Groups PlaceGroups(Groups groups, const std::vector<ModuleRanks>& modules,
                   const std::vector<std::vector<uint64_t>>& bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_GROUP_PLACEMENT_H_
