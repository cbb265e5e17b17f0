#ifndef BALLAST_CLIENT_BALLASTCTL_DOCTOR_H_
#define BALLAST_CLIENT_BALLASTCTL_DOCTOR_H_

#include <memory>

#include "client/ballastctl/server_option.h"
#include "common/command_line.h"

namespace ballast {

// Adds `doctor`, which looks at this machine and at every server, and says what
// to change.
void AddDoctor(CommandLine* line, std::shared_ptr<const ServerOption> server);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_DOCTOR_H_
