#ifndef BALLAST_CLIENT_BALLASTCTL_MIXTURE_COMMAND_H_
#define BALLAST_CLIENT_BALLASTCTL_MIXTURE_COMMAND_H_

#include <memory>
#include <string>

#include "client/ballastctl/query_client.h"
#include "common/command_line.h"
#include "proto/order_service.pb.h"

namespace ballast {

// `mixture`: the number of samples that training has taken from each source.
void AddMixture(CommandLine* line, std::shared_ptr<const ServerOption> server);

// One JSON object, or a table with a line above it.
std::string MixtureJson(const v1::GetMixtureResponse& mixture);
std::string MixtureTable(const v1::GetMixtureResponse& mixture);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_MIXTURE_COMMAND_H_
