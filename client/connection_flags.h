#ifndef BALLAST_CLIENT_CONNECTION_FLAGS_H_
#define BALLAST_CLIENT_CONNECTION_FLAGS_H_

#include "client/failover.h"
#include "common/channel_security.h"
#include "common/command_line.h"

namespace ballast {
// Adds --wait-for-server, --hang-after and --give-up-after, in whole seconds,
// for `options`, which must outlive `command`. slow_after stays four times
// silent_after.
void AddFailoverFlags(Command* command, FailoverOptions* options);

// Adds --tls-ca, --tls-cert, --tls-key, --tls-server-name and --token-file,
// each also from the environment (BALLAST_TLS_CA and so on), for `files`, which
// must outlive `command`.
void AddSecurityFlags(Command* command, SecurityFiles* files);

}  // namespace ballast

#endif  // BALLAST_CLIENT_CONNECTION_FLAGS_H_
