#include "client/schedule_source.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/schedule/fingerprint.h"

namespace ballast {
namespace {

bool IsSame(const v1::Revision& a, const v1::Revision& b) {
  return a.first_step() == b.first_step() &&
         a.fingerprint().hash() == b.fingerprint().hash();
}

// The fingerprint of `step`.
const v1::Fingerprint& At(const v1::Fingerprint& own,
                          absl::Span<const v1::Revision> revisions,
                          uint64_t step) {
  const v1::Fingerprint* found = &own;
  for (const v1::Revision& revision : revisions) {
    if (revision.first_step() <= step) found = &revision.fingerprint();
  }
  return *found;
}

}  // namespace

bool GoOnFrom(absl::Span<const v1::Revision> a,
              absl::Span<const v1::Revision> b) {
  return std::equal(a.begin(), a.begin() + std::min(a.size(), b.size()),
                    b.begin(), IsSame);
}

RevisionChain::RevisionChain(std::string own,
                             absl::Span<const v1::Revision> revisions)
    : own_(std::move(own)), revisions_(revisions.begin(), revisions.end()) {}

std::string RevisionChain::HashAt(uint64_t step) const {
  MutexLock lock(&mutex_);
  for (auto each = revisions_.rbegin(); each != revisions_.rend(); ++each) {
    if (each->first_step() <= step) return each->fingerprint().hash();
  }
  return own_;
}

void RevisionChain::Note(uint64_t step) {
  MutexLock lock(&mutex_);
  taken_below_ = std::max(taken_below_, step + 1);
}

absl::Status RevisionChain::Extend(const v1::AttachResponse& told) {
  if (told.fingerprint().hash() != own_) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", told.server(), " has fingerprint ",
                     told.fingerprint().hash(), ", wanted ", own_));
  }
  MutexLock lock(&mutex_);
  std::vector<v1::Revision> revisions(told.revisions().begin(),
                                      told.revisions().end());
  if (!GoOnFrom(revisions_, revisions)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "server ", told.server(),
        " has other changes of the running job than this rank has been told"));
  }
  if (revisions.size() <= revisions_.size()) return absl::OkStatus();
  const v1::Revision& first = revisions[revisions_.size()];
  if (first.first_step() < taken_below_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job was changed from step ", first.first_step(),
        " on, and this rank has taken step ", taken_below_ - 1,
        " without that; resume all ranks from a checkpoint at step ",
        first.first_step(), " or before"));
  }
  revisions_ = std::move(revisions);
  return absl::OkStatus();
}

std::vector<v1::Revision> RevisionChain::Before(uint64_t step) const {
  MutexLock lock(&mutex_);
  std::vector<v1::Revision> before;
  for (const v1::Revision& revision : revisions_) {
    if (revision.first_step() < step) before.push_back(revision);
  }
  return before;
}

absl::Status CheckSameData(const v1::Fingerprint& checkpoint,
                           absl::Span<const v1::Revision> checkpoint_revisions,
                           const v1::AttachResponse& server,
                           absl::string_view server_name, v1::Split split,
                           uint64_t next_step) {
  const std::vector<v1::Revision> server_revisions(server.revisions().begin(),
                                                   server.revisions().end());
  // The steps from which one side has another revision.
  std::set<uint64_t> begins = {0};
  for (const auto& revisions :
       {checkpoint_revisions, absl::MakeConstSpan(server_revisions)}) {
    for (const v1::Revision& revision : revisions) {
      if (revision.first_step() < next_step) {
        begins.insert(revision.first_step());
      }
    }
  }
  for (auto begin = begins.begin(); begin != begins.end(); ++begin) {
    const auto next = std::next(begin);
    BALLAST_RETURN_IF_ERROR(CheckSameData(
        At(checkpoint, checkpoint_revisions, *begin),
        At(server.fingerprint(), server_revisions, *begin), server_name, split,
        next == begins.end() ? next_step : *next));
  }
  return absl::OkStatus();
}

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
    BALLAST_ASSIGN_OR_RETURN(schedule_,
                             Fetch(step, LoaderClient::Use::kTrains));
    fetched_ = true;
  }
  return &schedule_;
}

absl::StatusOr<v1::StepSchedule> ScheduleSource::Fetch(uint64_t step,
                                                       LoaderClient::Use use) {
  while (true) {
    absl::StatusOr<v1::StepSchedule> schedule =
        Ask(servers_[failover_.server()], step, use);
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
               absl::FormatDuration(absl::Ceil(*wait, absl::Milliseconds(1))));
    if (*wait > absl::ZeroDuration() && !sleeper_->Sleep(*wait)) {
      return absl::CancelledError("the wait for a schedule was cancelled");
    }
  }
}

absl::StatusOr<v1::StepSchedule> ScheduleSource::Ask(
    LoaderClient* server, uint64_t step, LoaderClient::Use use) const {
  absl::StatusOr<v1::StepSchedule> schedule =
      server->GetSchedule(step, options_.split, use);
  BALLAST_RETURN_IF_ERROR(schedule.status());
  const bool trains = use == LoaderClient::Use::kTrains;
  if (schedule->fingerprint() == chain_->HashAt(step)) {
    if (trains) chain_->Note(step);
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
    if (trains) chain_->Note(step);
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
