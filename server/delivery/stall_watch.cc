#include "server/delivery/stall_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"

namespace ballast {

std::vector<WorkInHand> Stalled(absl::Span<const WorkInHand> work,
                                absl::Time now, absl::Duration after) {
  std::vector<WorkInHand> stalled;
  for (const WorkInHand& item : work) {
    if (now - item.since >= after) stalled.push_back(item);
  }
  std::sort(stalled.begin(), stalled.end(),
            [](const WorkInHand& a, const WorkInHand& b) {
              return std::make_pair(a.since, a.id) <
                     std::make_pair(b.since, b.id);
            });
  return stalled;
}

std::vector<WorkInHand> StallReports::New(
    absl::Span<const WorkInHand> stalled) {
  std::vector<WorkInHand> fresh;
  std::set<uint64_t> ids;
  for (const WorkInHand& item : stalled) {
    ids.insert(item.id);
    if (told_.count(item.id) == 0) fresh.push_back(item);
  }
  told_ = std::move(ids);
  return fresh;
}

absl::StatusOr<std::unique_ptr<StallWatch>> StallWatch::Start(
    const WorkBoard* board, absl::Duration after, Describe describe,
    Clock* clock) {
  std::unique_ptr<StallWatch> watch(
      new StallWatch(board, after, std::move(describe), clock));
  BALLAST_ASSIGN_OR_RETURN(
      watch->ticker_,
      Ticker::Start(
          "watch for stalls", [w = watch.get()] { return w->after_.Get() / 4; },
          [w = watch.get()] { w->Look(); }, clock));
  return watch;
}

StallWatch::StallWatch(const WorkBoard* board, absl::Duration after,
                       Describe describe, Clock* clock)
    : board_(board),
      after_(after),
      describe_(std::move(describe)),
      clock_(clock) {}

std::vector<WorkInHand> StallWatch::Stalls() const {
  return Stalled(board_->List(), clock_->Now(), after_.Get());
}

void StallWatch::Look() {
  const absl::Time now = clock_->Now();
  for (const WorkInHand& item :
       reports_.New(Stalled(board_->List(), now, after_.Get()))) {
    LogWarning("stall: ", item.stage, " of ", describe_(item), " for ",
               ModuleName(item.module), " position ", item.position,
               " has taken ",
               absl::FormatDuration(
                   absl::Trunc(now - item.since, absl::Milliseconds(100))));
  }
}

}  // namespace ballast
