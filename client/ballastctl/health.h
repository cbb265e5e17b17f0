#ifndef BALLAST_CLIENT_BALLASTCTL_HEALTH_H_
#define BALLAST_CLIENT_BALLASTCTL_HEALTH_H_

#include <functional>
#include <memory>
#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/ballastctl/query_client.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/command_line.h"

namespace ballast {

// `health`: whether a server serves, for probes and scripts.
void AddHealth(CommandLine* line, std::shared_ptr<const ServerOption> server);

// The state that AwaitHealth waits for: a server that serves, or, for liveness
// probes, one that answers at all (kAlive).
enum class Wanted { kServing, kAlive };

// Repeats gRPC's health check for up to `wait`, and writes "serving" to `out`
// once the server serves; with kAlive also "not serving" once it answers that.
// Each check uses a new client from `connect`, because a client that could not
// connect waits for seconds before it tries again. `clock` is not owned.
// Errors: as `connect`; as the last LoaderClient::CheckHealth, at once if
// waiting cannot change the error (UNAUTHENTICATED, INVALID_ARGUMENT, ...).
using Connect = std::function<absl::StatusOr<std::unique_ptr<LoaderClient>>()>;
absl::Status AwaitHealth(const Connect& connect, absl::Duration wait,
                         Clock* clock, std::ostream* out,
                         Wanted wanted = Wanted::kServing);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_HEALTH_H_
