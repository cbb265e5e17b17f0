#ifndef BALLAST_CLIENT_SCHEDULE_SOURCE_H_
#define BALLAST_CLIENT_SCHEDULE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/failover.h"
#include "client/loader_client.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/loader_service.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The fingerprints that a rank accepts: of the job's own configuration, and of
// the changes of the running job that its servers have reported, each from a
// step on (docs/changes.md). Thread-safe.
class RevisionChain {
 public:
  // `own` is Fingerprint.hash of the job's own configuration.
  explicit RevisionChain(std::string own,
                         absl::Span<const v1::Revision> revisions = {});

  // The hash that the schedule of `step` must carry.
  std::string HashAt(uint64_t step) const;

  // The rank has taken a schedule of `step`.
  void Note(uint64_t step);

  // Adds the changes that a server reports. Errors: FAILED_PRECONDITION (it is
  // of another job; it has another change where the rank knows one; a new one
  // begins at a step that the rank has taken). Then nothing is added.
  absl::Status Extend(const v1::AttachResponse& told);

  // The changes that begin before `step`.
  std::vector<v1::Revision> Before(uint64_t step) const;

 private:
  const std::string own_;
  mutable Mutex mutex_;
  std::vector<v1::Revision> revisions_ ABSL_GUARDED_BY(mutex_);
  uint64_t taken_below_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Whether the changes of one list are the first ones of the other.
bool GoOnFrom(absl::Span<const v1::Revision> a,
              absl::Span<const v1::Revision> b);

// As CheckSameData (proto/schedule/fingerprint.h), where the job was or is
// changed while it runs: the data of each step before `next_step` are compared
// by the revision of that step on either side. A configuration that contains
// what a running job was changed to has the same data.
absl::Status CheckSameData(const v1::Fingerprint& checkpoint,
                           absl::Span<const v1::Revision> checkpoint_revisions,
                           const v1::AttachResponse& server,
                           absl::string_view server_name, v1::Split split,
                           uint64_t next_step);

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

  // Likewise for a step that the rank does not train on now. It does not count
  // as reached, so a change of the job may still alter its schedule.
  absl::StatusOr<v1::StepSchedule> Look(uint64_t step) {
    return Fetch(step, LoaderClient::Use::kLooks);
  }

  // Ends a Get that waits between rounds, and every later one, with CANCELLED.
  void Cancel();

 private:
  absl::StatusOr<v1::StepSchedule> Fetch(uint64_t step, LoaderClient::Use use);
  // A server's answer. DATA_LOSS: its schedule has another fingerprint.
  absl::StatusOr<v1::StepSchedule> Ask(LoaderClient* server, uint64_t step,
                                       LoaderClient::Use use) const;

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
