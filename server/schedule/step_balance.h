#ifndef BALLAST_SERVER_SCHEDULE_STEP_BALANCE_H_
#define BALLAST_SERVER_SCHEDULE_STEP_BALANCE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/balance.pb.h"
#include "proto/block/block_plan.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// For each module the number in topology.servers of the server that reads for
// each data-parallel rank.
using ServersOfRanks = std::map<v1::Module, std::vector<uint32_t>>;

// Of a loaded configuration. Errors: INVALID_ARGUMENT (a list of ranks that
// is none).
absl::StatusOr<ServersOfRanks> FindServersOfRanks(const v1::Config& config);

// How evenly the load of a step lies, and what moves for it (proto/
// balance.proto), columns by rank included. Pure; O(samples + ranks). A rank
// that `servers` does not name is of server 0. `schedule` is well-formed
// (CheckColumns).
v1::StepBalance BalanceOf(const v1::StepSchedule& schedule,
                          const ServersOfRanks& servers,
                          const BlockGeometry& geometry);

// Empties the columns by rank.
void DropRanks(v1::StepBalance* balance);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_STEP_BALANCE_H_
