#ifndef BALLAST_CLIENT_BALLASTCTL_PULL_H_
#define BALLAST_CLIENT_BALLASTCTL_PULL_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/ballastctl/query_client.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/command_line.h"
#include "proto/job.pb.h"

namespace ballast {

// `pull`: a rank's blocks, verified, without a GPU.
void AddPull(CommandLine* line, std::shared_ptr<const ServerOption> server);

struct PullOptions {
  v1::Role role;
  uint64_t step = 0;
  uint64_t steps = 1;
  FailoverOptions failover;
  bool json = false;
};

// Pulls the role's blocks of the steps from `servers` (at least one; the next
// when one fails), checks each against its checksum, its layout and the
// schedule, and writes a line for each to `out`, the same on every run except
// for keys that end in `_ms`. Errors: as AttachAll, ScheduleSource and
// BatchStream; OUT_OF_RANGE if the data end before the first step (if they end
// later, the blocks up to the end are pulled and a line is logged); DATA_LOSS
// for a block that differs from the schedule; UNAVAILABLE for one that was
// overwritten while it was checked.
absl::Status PullBatches(absl::Span<LoaderClient* const> servers,
                         const PullOptions& options, Clock* clock,
                         std::ostream* out);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_PULL_H_
