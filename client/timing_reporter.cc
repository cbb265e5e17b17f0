#include "client/timing_reporter.h"

#include <algorithm>

namespace ballast {
namespace {

constexpr absl::Duration kFirstRest = absl::Seconds(10);
constexpr absl::Duration kLongestRest = absl::Minutes(5);

bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::Status TimingReporter::Report(const v1::StepTiming& timing,
                                    const std::string& fingerprint) {
  absl::Status status = absl::UnavailableError(
      "no server has taken timings lately, and none is asked now");
  for (size_t i = 0; i < servers_.size(); ++i) {
    const std::optional<size_t> server = Choose(i);
    if (!server.has_value()) continue;
    status = servers_[*server]->Report({timing}, fingerprint);
    Note(*server, status);
    if (!MayPass(status)) break;
  }
  return status;
}

std::optional<size_t> TimingReporter::Choose(size_t i) const {
  MutexLock lock(&mutex_);
  const size_t server = (first_ + i) % servers_.size();
  if (clock_->Now() < failures_[server].not_before) return std::nullopt;
  return server;
}

void TimingReporter::Note(size_t server, const absl::Status& status) {
  MutexLock lock(&mutex_);
  Failures& failures = failures_[server];
  if (!MayPass(status)) {
    failures.in_a_row = 0;
    first_ = server;
    return;
  }
  if (++failures.in_a_row < kTolerated) return;
  absl::Duration rest = kFirstRest;
  for (int i = kTolerated; i < failures.in_a_row && rest < kLongestRest; ++i) {
    rest *= 2;
  }
  failures.not_before = clock_->Now() + std::min(rest, kLongestRest);
}

}  // namespace ballast
