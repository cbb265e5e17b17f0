#ifndef BALLAST_CLIENT_FAILOVER_FLAGS_H_
#define BALLAST_CLIENT_FAILOVER_FLAGS_H_

#include "client/failover.h"
#include "common/command_line.h"

namespace ballast {

// Adds --wait-for-server, --hang-after and --give-up-after, in whole seconds,
// for `options`, which must outlive `command`. slow_after stays four times
// silent_after.
void AddFailoverFlags(Command* command, FailoverOptions* options);

}  // namespace ballast

#endif  // BALLAST_CLIENT_FAILOVER_FLAGS_H_
