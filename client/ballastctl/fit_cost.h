#ifndef BALLAST_CLIENT_BALLASTCTL_FIT_COST_H_
#define BALLAST_CLIENT_BALLASTCTL_FIT_COST_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "client/ballastctl/query_client.h"
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

// Fits every module for which the server keeps enough timings. Uses the
// schedules of the timings' steps. Writes one line of JSON (keys: the command's
// --help), or a table, warnings and the lines for the configuration. Errors: as
// LoaderClient and AddObservations; NOT_FOUND (no such timing);
// INVALID_ARGUMENT (too few timings for every module).
absl::Status PrintCostFit(LoaderClient* client, const FitCostOptions& options,
                          std::ostream* out);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_FIT_COST_H_
