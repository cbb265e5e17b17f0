#ifndef BALLAST_CLIENT_BALLASTCTL_FIT_COST_H_
#define BALLAST_CLIENT_BALLASTCTL_FIT_COST_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "client/ballastctl/server_option.h"
#include "client/loader_client.h"
#include "common/command_line.h"
#include "proto/schedule.pb.h"

namespace ballast {

// `fit-cost`: cost coefficients from the times that ranks reported.
void AddFitCost(CommandLine* line, std::shared_ptr<const ServerOption> server);

struct FitCostOptions {
  v1::Module module = v1::MODULE_UNSPECIFIED;  // unspecified: every module
  uint64_t from_step = 0;
  bool json = false;
};

// Fits every module that the server keeps enough timings of, by the schedules
// of their steps, and writes to `out` one line of JSON (the keys stand in the
// command's --help), or a table, what to beware of, and the lines for the
// configuration. Errors: those of LoaderClient and AddObservations; NOT_FOUND
// (no timing of what is asked for); INVALID_ARGUMENT (too few of every module).
absl::Status PrintCostFit(LoaderClient* client, const FitCostOptions& options,
                          std::ostream* out);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_FIT_COST_H_
