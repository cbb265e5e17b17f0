#ifndef BALLAST_CLIENT_BALLASTCTL_HEALTH_H_
#define BALLAST_CLIENT_BALLASTCTL_HEALTH_H_

#include <functional>
#include <memory>
#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/ballastctl/server_option.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/command_line.h"

namespace ballast {

// `health`: whether a server serves, for probes and scripts.
void AddHealth(CommandLine* line, std::shared_ptr<const ServerOption> server);

// Asks by gRPC health checking for up to `wait`, and writes "serving" to `out`
// once the server serves. Each attempt uses a new client of `connect`: one that
// found no server waits for seconds before it tries again. `clock` is not
// owned. Errors: as `connect`; as LoaderClient::CheckHealth the last time, and
// at once where waiting does not help (UNAUTHENTICATED, INVALID_ARGUMENT, ...).
using Connect = std::function<absl::StatusOr<std::unique_ptr<LoaderClient>>()>;
absl::Status AwaitHealth(const Connect& connect, absl::Duration wait,
                         Clock* clock, std::ostream* out);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_HEALTH_H_
