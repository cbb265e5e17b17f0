#ifndef BALLAST_CLIENT_BALLASTCTL_BALANCE_COMMAND_H_
#define BALLAST_CLIENT_BALLASTCTL_BALANCE_COMMAND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "client/ballastctl/query_client.h"
#include "common/command_line.h"
#include "proto/balance.pb.h"

namespace ballast {

// `balance`: the ranks' load and how even it is.
void AddBalance(CommandLine* line, std::shared_ptr<const ServerOption> server);

struct BalanceOptions {
  std::optional<uint64_t> step;  // absent: training's current one
  uint64_t steps = 1;            // with watch, 0: without end
  bool ranks = false;
  bool watch = false;
  bool json = false;
};

// Writes a table per step, or one JSON object per line (keys: the command's
// --help). Errors: as QueryClient.
absl::Status PrintBalance(QueryClient* client, const BalanceOptions& options,
                          std::ostream* out);

// A table of one step: a line per module, and one per rank if `balance` has
// ranks.
std::string BalanceTable(const v1::StepBalance& balance);
// One line of JSON.
std::string BalanceJson(const v1::StepBalance& balance);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_BALANCE_COMMAND_H_
