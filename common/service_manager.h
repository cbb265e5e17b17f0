#ifndef BALLAST_COMMON_SERVICE_MANAGER_H_
#define BALLAST_COMMON_SERVICE_MANAGER_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ballast {

// Notifies the service manager that started this process, by systemd's protocol
// (sd_notify(3), units with Type=notify): one datagram, no library. Does
// nothing if $NOTIFY_SOCKET is not set; drops messages that cannot be sent.
// `state` holds assignments, one per line:
//   READY=1, RELOADING=1 (NotifyReloading), STOPPING=1, WATCHDOG=1, STATUS=...
// Thread-safe while the environment does not change. Does not block.
void NotifyServiceManager(absl::string_view state);

// Sends RELOADING=1 with the time that the protocol requires; READY=1 ends the
// reload.
void NotifyReloading();

// Time without a WATCHDOG=1 after which the service manager considers the
// process hung ($WATCHDOG_USEC, if meant for this process); absent if it has no
// watchdog.
std::optional<absl::Duration> WatchdogTimeout();

}  // namespace ballast

#endif  // BALLAST_COMMON_SERVICE_MANAGER_H_
