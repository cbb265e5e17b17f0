#ifndef BALLAST_CLIENT_SCHEDULE_SOURCE_H_
#define BALLAST_CLIENT_SCHEDULE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "client/revision_chain.h"
#include "common/clock.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The schedules of one split of a job, step after step, from any server that
// answers: all servers have the same ones. If a schedule has a fingerprint that
// the rank does not know, the server is asked for the changes of the running
// job, and the schedule is taken only if it matches one of them
// (RevisionChain). Get must be called from one thread; Cancel may be called
// from any.
class ScheduleSource {
 public:
  struct Options {
    // Fingerprint.hash of the job's own configuration, which every schedule
    // must carry up to the first change of `chain`.
    std::string fingerprint;
    // The changes that the rank knows; all sources of the rank share
    // it. Null: one of this source, without changes.
    std::shared_ptr<RevisionChain> chain;
    v1::Split split = v1::SPLIT_TRAIN;
    FailoverOptions failover;
    Clock* clock = Clock::Real();  // outlives this
  };

  // `servers`: at least one; not owned.
  ScheduleSource(absl::Span<LoaderClient* const> servers, Options options);

  // The schedule of `step`, valid until the next call. Asks a server only when
  // the step differs from the last call's; blocks until one answers, going from
  // server to server as Failover does. Errors: as Failover::OnFailure for the
  // errors of LoaderClient::GetSchedule; DATA_LOSS (every server has another
  // fingerprint: its configuration or index changed); CANCELLED.
  absl::StatusOr<const v1::StepSchedule*> Get(uint64_t step);

  // Ends a Get that waits between rounds, and every later one, with CANCELLED.
  void Cancel();

 private:
  absl::StatusOr<v1::StepSchedule> Fetch(uint64_t step);
  // A server's answer. DATA_LOSS: its schedule has another fingerprint.
  absl::StatusOr<v1::StepSchedule> Ask(LoaderClient* server,
                                       uint64_t step) const;

  const std::vector<LoaderClient*> servers_;
  const Options options_;
  const std::shared_ptr<RevisionChain> chain_;
  const std::unique_ptr<Sleeper> sleeper_;
  Failover failover_;
  bool fetched_ = false;
  v1::StepSchedule schedule_;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_SCHEDULE_SOURCE_H_
