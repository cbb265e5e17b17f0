#ifndef BALLAST_CLIENT_BALLASTCTL_METRICS_H_
#define BALLAST_CLIENT_BALLASTCTL_METRICS_H_

#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "client/ballastctl/query_client.h"
#include "common/command_line.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// `metrics`: a server's instruments.
void AddMetrics(CommandLine* line, std::shared_ptr<const ServerOption> server);

// Writes the instruments whose names begin with `prefix`, as a table or one
// JSON object (keys: the command's --help). Errors: as QueryClient::GetStats.
absl::Status PrintMetrics(QueryClient* client, const std::string& prefix,
                          bool json, std::ostream* out);

// A table with a line per metric; metrics with labels are listed below the name
// of their family. Histograms show the number of times and their quantiles.
std::string MetricsTable(const v1::GetStatsResponse& stats);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_METRICS_H_
