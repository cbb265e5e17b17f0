#ifndef BALLAST_SERVER_CONFIG_COST_RESOLUTION_H_
#define BALLAST_SERVER_CONFIG_COST_RESOLUTION_H_

#include "proto/config.pb.h"
#include "server/config/key_report.h"

namespace ballast {

// Replaces `model` of balance.cost and of each entry of balance.cost_changes by
// the coefficients that ModelCost computes from config.json in that directory.
// Coefficients that the configuration file gives stay as they are. Adds a fault
// if a config.json cannot be read or used. Paths are resolved. Blocks on the
// disk.
void ResolveModelCosts(v1::Balance* balance, KeyReport* report);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_COST_RESOLUTION_H_
