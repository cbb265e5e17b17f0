#include "trainer_shim/schedule_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Whether another server, or the same one later, may answer.
bool MayPass(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace

ScheduleSource::ScheduleSource(absl::Span<LoaderClient* const> servers,
                               Options options)
    : servers_(servers.begin(), servers.end()),
      options_(std::move(options)),
      sleeper_(options_.clock->NewSleeper()) {}

absl::StatusOr<const v1::StepSchedule*> ScheduleSource::Get(uint64_t step) {
  if (!fetched_ || schedule_.step() != step) {
    fetched_ = false;
    BALLAST_ASSIGN_OR_RETURN(schedule_, Fetch(step));
    fetched_ = true;
  }
  return &schedule_;
}

absl::StatusOr<v1::StepSchedule> ScheduleSource::Fetch(uint64_t step) {
  absl::Duration backoff = options_.first_backoff;
  for (int attempt = 1;; ++attempt) {
    absl::Status last;
    for (size_t i = 0; i < servers_.size(); ++i) {
      LoaderClient* server = servers_[current_];
      absl::StatusOr<v1::StepSchedule> schedule = server->GetSchedule(step);
      if (schedule.ok()) {
        BALLAST_RETURN_IF_ERROR(Check(*schedule, server->address()));
        return schedule;
      }
      last = schedule.status();
      if (!MayPass(last)) return last;
      current_ = (current_ + 1) % servers_.size();
    }
    if (attempt >= options_.max_attempts) {
      return Annotate(last, absl::StrCat("no server answered the schedule of "
                                         "step ",
                                         step, " in ", attempt, " attempts"));
    }
    LogWarning("no server answers the schedule of step ", step,
               "; asking again in ", absl::FormatDuration(backoff), ": ",
               last.message());
    if (!sleeper_->Sleep(backoff)) {
      return absl::CancelledError("the wait for a schedule was cancelled");
    }
    backoff *= 2;
  }
}

absl::Status ScheduleSource::Check(const v1::StepSchedule& schedule,
                                   const std::string& address) const {
  if (schedule.fingerprint() != options_.fingerprint) {
    return absl::DataLossError(absl::StrCat(
        "server ", address, ": the schedule of step ", schedule.step(),
        " has fingerprint ", schedule.fingerprint(), ", wanted ",
        options_.fingerprint, "; the server's configuration or index changed"));
  }
  return absl::OkStatus();
}

void ScheduleSource::Cancel() { sleeper_->Wake(); }

}  // namespace ballast
