#ifndef BALLAST_SERVER_SCHEDULE_GROUP_NUMBERING_H_
#define BALLAST_SERVER_SCHEDULE_GROUP_NUMBERING_H_

#include <cstdint>
#include <vector>

#include "proto/schedule.pb.h"
#include "proto/schedule/delivery_rule.h"
#include "proto/schedule/module.h"
#include "server/schedule/balance.h"

namespace ballast {

// The data-parallel ranks of one module.
struct ModuleRanks {
  v1::Module module;
  uint32_t dp;  // divides the grid
  ServerOfRank server_of_rank;
  Media media = Media::kNone;  // has no effect on the numbering
};

// The samples as read by a module's ranks.
struct ModuleShards {
  ModuleRanks ranks;
  std::vector<uint32_t> reader;  // per sample
  std::vector<uint64_t> bytes;   // per sample: PayloadBytes for the module
};

// Weight of a byte that moves between ranks of different servers, relative to
// one that moves between ranks of the same server.
inline constexpr int64_t kBetweenServers = 4;

// Reorders the groups so that as few bytes as possible move from readers to
// owners, where bytes between servers count kBetweenServers times. Loads do not
// depend on the order, so any rank may own any group. Optimal for up to 512
// groups; beyond, within 1/512 of the bytes that could stay. Modules whose
// ranks own more than 64 groups each are ignored. The groups fill `slots`
// micro-batches of `grid` groups each, one after the other; a group may end up
// in any of them.
Groups NumberGroups(Groups groups, uint32_t slots,
                    const std::vector<ModuleShards>& shards);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_GROUP_NUMBERING_H_
