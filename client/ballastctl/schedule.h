#ifndef BALLAST_CLIENT_BALLASTCTL_SCHEDULE_H_
#define BALLAST_CLIENT_BALLASTCTL_SCHEDULE_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "client/ballastctl/query_client.h"
#include "client/loader_client.h"
#include "common/command_line.h"

namespace ballast {

// `schedule`: the schedule of steps, as `ballast-server plan` prints it.
void AddSchedule(CommandLine* line, std::shared_ptr<const ServerOption> server);

// Writes steps `first` to `first + steps - 1` to `out`: one line of JSON each,
// or tables. Errors: as LoaderClient::GetSchedule.
absl::Status PrintSchedules(LoaderClient* client, uint64_t first,
                            uint64_t steps, bool json, std::ostream* out,
                            v1::Split split = v1::SPLIT_TRAIN);

// Writes the same from WatchSchedule, each step as it arrives; 0 steps: until
// the server ends the watch. Errors: as ScheduleWatcher::Next.
absl::Status WatchSchedules(LoaderClient* client, uint64_t first,
                            uint64_t steps, bool json, std::ostream* out,
                            v1::Split split = v1::SPLIT_TRAIN);

}  // namespace ballast

#endif  // BALLAST_CLIENT_BALLASTCTL_SCHEDULE_H_
