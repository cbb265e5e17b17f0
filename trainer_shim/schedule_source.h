#ifndef BALLAST_TRAINER_SHIM_SCHEDULE_SOURCE_H_
#define BALLAST_TRAINER_SHIM_SCHEDULE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The schedules of a job, step after step, from whichever server answers: all
// have the same. One thread calls Get; Cancel is for any.
class ScheduleSource {
 public:
  struct Options {
    // Fingerprint.hash that every schedule must say.
    std::string fingerprint;
    // Rounds over all servers, then the last one's error stands.
    int max_attempts = 5;
    // Waited after the first round; doubled after each further one.
    absl::Duration first_backoff = absl::Milliseconds(500);
    Clock* clock = Clock::Real();  // outlives this
  };

  // `servers`: at least one; not owned.
  ScheduleSource(absl::Span<LoaderClient* const> servers, Options options);

  // The schedule of `step`, valid until the next call. Asks a server only when
  // the step is another than the last call's; blocks until one answers. A
  // server that is UNAVAILABLE or late (DEADLINE_EXCEEDED) makes it ask the
  // next. Errors: as LoaderClient::GetSchedule; DATA_LOSS (another fingerprint:
  // the server changed its configuration); CANCELLED.
  absl::StatusOr<const v1::StepSchedule*> Get(uint64_t step);

  // Ends a Get that waits between rounds, and every later one, with CANCELLED.
  void Cancel();

 private:
  absl::StatusOr<v1::StepSchedule> Fetch(uint64_t step);
  absl::Status Check(const v1::StepSchedule& schedule,
                     const std::string& address) const;

  const std::vector<LoaderClient*> servers_;
  const Options options_;
  const std::unique_ptr<Sleeper> sleeper_;
  size_t current_ = 0;  // the server that answered last
  bool fetched_ = false;
  v1::StepSchedule schedule_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_SCHEDULE_SOURCE_H_
