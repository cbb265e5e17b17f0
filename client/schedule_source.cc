#include "client/schedule_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace ballast {

ScheduleSource::ScheduleSource(absl::Span<LoaderClient* const> servers,
                               Options options)
    : servers_(servers.begin(), servers.end()),
      options_(std::move(options)),
      chain_(options_.chain != nullptr
                 ? options_.chain
                 : std::make_shared<RevisionChain>(options_.fingerprint)),
      sleeper_(options_.clock->NewSleeper()),
      failover_(ServerNames(servers), options_.failover) {}

absl::StatusOr<const v1::StepSchedule*> ScheduleSource::Get(uint64_t step) {
  if (!fetched_ || schedule_.step() != step) {
    fetched_ = false;
    BALLAST_ASSIGN_OR_RETURN(schedule_, Fetch(step));
    fetched_ = true;
  }
  return &schedule_;
}

absl::StatusOr<v1::StepSchedule> ScheduleSource::Fetch(uint64_t step) {
  while (true) {
    absl::StatusOr<v1::StepSchedule> schedule =
        Ask(servers_[failover_.server()], step);
    if (schedule.ok()) {
      failover_.OnProgress();
      return schedule;
    }
    const absl::StatusOr<absl::Duration> wait =
        failover_.OnFailure(options_.clock->Now(), schedule.status());
    if (!wait.ok()) {
      return Annotate(wait.status(), absl::StrCat("schedule of step ", step));
    }
    LogWarning("schedule of step ", step, ": ", schedule.status().message(),
               "; asking ", failover_.name(), " in ",
               absl::FormatDuration(*wait));
    if (*wait > absl::ZeroDuration() && !sleeper_->Sleep(*wait)) {
      return absl::CancelledError("the wait for a schedule was cancelled");
    }
  }
}

absl::StatusOr<v1::StepSchedule> ScheduleSource::Ask(LoaderClient* server,
                                                     uint64_t step) const {
  absl::StatusOr<v1::StepSchedule> schedule =
      server->GetSchedule(step, options_.split);
  BALLAST_RETURN_IF_ERROR(schedule.status());
  if (schedule->fingerprint() == chain_->HashAt(step)) {
    chain_->Note(step);
    return schedule;
  }
  // Other splits than train do not change.
  absl::Status extended;
  if (options_.split == v1::SPLIT_TRAIN) {
    const absl::StatusOr<v1::AttachResponse> told =
        server->Attach(v1::Role(), v1::Fingerprint());
    extended = told.ok() ? chain_->Extend(*told) : told.status();
  }
  // It may say so when it is asked again.
  if (GetFault(extended) == Fault::kPassing) return extended;
  if (extended.ok() && schedule->fingerprint() == chain_->HashAt(step)) {
    LogInfo("the job has been changed: step ", step, " has fingerprint ",
            schedule->fingerprint());
    chain_->Note(step);
    return schedule;
  }
  return absl::DataLossError(
      absl::StrCat("server ", server->address(), ": the schedule of step ",
                   step, " has fingerprint ", schedule->fingerprint(),
                   ", wanted ", chain_->HashAt(step), "; ",
                   extended.ok() ? "the server's configuration or index changed"
                                 : extended.message()));
}

void ScheduleSource::Cancel() { sleeper_->Wake(); }

}  // namespace ballast
