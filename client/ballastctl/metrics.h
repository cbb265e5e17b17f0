#ifndef BALLAST_CLIENT_BALLASTCTL_METRICS_H_
#define BALLAST_CLIENT_BALLASTCTL_METRICS_H_

#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "client/ballastctl/server_option.h"
#include "client/loader_client.h"
#include "common/command_line.h"
#include "proto/metrics_service.pb.h"

namespace ballast {

// `metrics`: a server's instruments.
void AddMetrics(CommandLine* line, std::shared_ptr<const ServerOption> server);

// Those whose names begin with `prefix`, as a table or one JSON object (the
// keys stand in the command's --help). Errors: those of LoaderClient::GetStats.
absl::Status PrintMetrics(LoaderClient* client, const std::string& prefix,
                          bool json, std::ostream* out);

// For people: a line a metric, those with labels below the name of their
// family; of histograms how many times there were, and quantiles of these.
std::string MetricsTable(const v1::GetStatsResponse& stats);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_METRICS_H_
