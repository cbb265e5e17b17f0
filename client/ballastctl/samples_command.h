#ifndef BALLAST_CLIENT_BALLASTCTL_SAMPLES_COMMAND_H_
#define BALLAST_CLIENT_BALLASTCTL_SAMPLES_COMMAND_H_

#include <cstdint>
#include <memory>
#include <ostream>

#include "absl/status/status.h"
#include "client/ballastctl/query_client.h"
#include "common/command_line.h"

namespace ballast {

// `samples`: the samples of steps and their places.
void AddSamples(CommandLine* line, std::shared_ptr<const ServerOption> server);

// Writes the samples of steps `first` to `first + steps - 1` to `out`, one line
// each. Errors: as QueryClient::GetSamples.
absl::Status PrintSamples(QueryClient* client, uint64_t first, uint64_t steps,
                          v1::Split split, bool json, std::ostream* out);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_SAMPLES_COMMAND_H_
