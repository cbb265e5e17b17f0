#ifndef BALLAST_COMMON_SERVICE_MANAGER_H_
#define BALLAST_COMMON_SERVICE_MANAGER_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ballast {

// Notifies the service manager that started this process, by systemd's protocol
// (sd_notify(3), units with Type=notify): one datagram, no library. Does
// nothing where $NOTIFY_SOCKET is not set; drops what cannot be sent. `state`
// holds assignments, one a line:
//   READY=1, RELOADING=1 (NotifyReloading), STOPPING=1, WATCHDOG=1, STATUS=...
// Thread-safe while the environment does not change. Does not block.
void NotifyServiceManager(absl::string_view state);

// Sends RELOADING=1 with the time that the protocol wants; READY=1 ends it.
void NotifyReloading();

// The time without a WATCHDOG=1 after which the service manager takes the
// process to hang ($WATCHDOG_USEC, if meant for this process); nothing where it
// does not watch.
std::optional<absl::Duration> WatchdogTimeout();

}  // namespace ballast

#endif  // BALLAST_COMMON_SERVICE_MANAGER_H_
