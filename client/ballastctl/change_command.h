#ifndef BALLAST_CLIENT_BALLASTCTL_CHANGE_COMMAND_H_
#define BALLAST_CLIENT_BALLASTCTL_CHANGE_COMMAND_H_

#include <memory>
#include <string>

#include "client/ballastctl/query_client.h"
#include "common/command_line.h"
#include "proto/revision_service.pb.h"

namespace ballast {

// `change`: offers a configuration to a running job, from a step on.
void AddChange(CommandLine* line, std::shared_ptr<const ServerOption> server);

// What was agreed, or what would be after a dry run: one JSON object, or lines.
std::string ChangeJson(const v1::ChangeResponse& change);
std::string ChangeText(const v1::ChangeResponse& change);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_CHANGE_COMMAND_H_
