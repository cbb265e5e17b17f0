#ifndef BALLAST_CLIENT_BALLASTCTL_STATUS_H_
#define BALLAST_CLIENT_BALLASTCTL_STATUS_H_

#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "client/ballastctl/server_option.h"
#include "client/loader_client.h"
#include "common/command_line.h"

namespace ballast {

// `status`: what a server says of itself and its job.
void AddStatus(CommandLine* line, std::shared_ptr<const ServerOption> server);

// Writes it to `out`: one line of JSON (the keys stand in the command's --help)
// or a table. Errors: those of LoaderClient::Attach and GetStatus.
absl::Status PrintStatus(LoaderClient* client, bool json, std::ostream* out);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_STATUS_H_
