#ifndef BALLAST_CLIENT_FAILOVER_FLAGS_H_
#define BALLAST_CLIENT_FAILOVER_FLAGS_H_

#include <CLI/CLI.hpp>

#include "client/failover.h"

namespace ballast {

// --wait-for-server, --hang-after and --give-up-after, in whole seconds, for
// `options`, which must outlive `app`. slow_after stays four times
// silent_after.
void AddFailoverFlags(CLI::App* app, FailoverOptions* options);

}  // namespace ballast

#endif  // BALLAST_CLIENT_FAILOVER_FLAGS_H_
