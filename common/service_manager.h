#ifndef BALLAST_COMMON_SERVICE_MANAGER_H_
#define BALLAST_COMMON_SERVICE_MANAGER_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ballast {

// What a process tells the service manager that started it: systemd's
// notification protocol (sd_notify(3), units with Type=notify), which is one
// datagram and needs no library. Does nothing where $NOTIFY_SOCKET is not set;
// what cannot be sent is dropped. `state` holds assignments, one a line:
//   READY=1, RELOADING=1 (NotifyReloading), STOPPING=1, WATCHDOG=1, STATUS=...
// Thread-safe as long as nobody changes the environment. Does not block.
void NotifyServiceManager(absl::string_view state);

// RELOADING=1 with the time that the protocol wants beside it; READY=1 ends it.
void NotifyReloading();

// How long the service manager waits for a WATCHDOG=1 before it takes the
// process to hang ($WATCHDOG_USEC, if it is meant for this process); nothing
// where it does not watch.
std::optional<absl::Duration> WatchdogTimeout();

}  // namespace ballast

#endif  // BALLAST_COMMON_SERVICE_MANAGER_H_
