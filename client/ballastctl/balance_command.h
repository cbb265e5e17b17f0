#ifndef BALLAST_CLIENT_BALLASTCTL_BALANCE_COMMAND_H_
#define BALLAST_CLIENT_BALLASTCTL_BALANCE_COMMAND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "client/ballastctl/server_option.h"
#include "client/loader_client.h"
#include "common/command_line.h"
#include "proto/balance.pb.h"

namespace ballast {

// `balance`: how evenly the load of steps lies on the ranks.
void AddBalance(CommandLine* line, std::shared_ptr<const ServerOption> server);

struct BalanceOptions {
  std::optional<uint64_t> step;  // nothing: the one that training is at
  uint64_t steps = 1;            // with watch: 0 is without end
  bool ranks = false;
  bool watch = false;
  bool json = false;
};

// Writes a table a step, or one JSON object a line (the keys stand in the
// command's --help). Errors: those of LoaderClient.
absl::Status PrintBalance(LoaderClient* client, const BalanceOptions& options,
                          std::ostream* out);

// A step for people: a line a module, and one a rank where `balance` has them.
std::string BalanceTable(const v1::StepBalance& balance);
// One line of JSON.
std::string BalanceJson(const v1::StepBalance& balance);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_BALANCE_COMMAND_H_
