#ifndef BALLAST_SERVER_SCHEDULE_STEP_BALANCE_H_
#define BALLAST_SERVER_SCHEDULE_STEP_BALANCE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/balance.pb.h"
#include "proto/block/payload_bytes.h"
#include "proto/config.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/delivery_rule.h"

namespace ballast {

// The servers that read for the ranks of each module.
using ServersOfRanks = std::map<v1::Module, ServerOfRank>;

// The servers of a loaded configuration. Errors: as FindServerOfRank.
absl::StatusOr<ServersOfRanks> FindServersOfRanks(const v1::Config& config);

// The balance of a step (proto/balance.proto), columns by rank included. Pure;
// O(samples + ranks). A module that `servers` does not name has one server.
// `schedule` has passed CheckColumns.
v1::StepBalance BalanceOf(const v1::StepSchedule& schedule,
                          const ServersOfRanks& servers,
                          const BlockGeometry& geometry);

// Clears the columns by rank.
void DropRanks(v1::StepBalance* balance);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_STEP_BALANCE_H_
