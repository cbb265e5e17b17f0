#include "client/failover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// A rank's patience ends before 2^6 times the limit.
constexpr int kMaxDoublings = 6;

std::string Duration(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

}  // namespace

absl::Status CheckFailoverOptions(const FailoverOptions& options) {
  const struct {
    const char* name;
    absl::Duration value;
  } durations[] = {{"first_backoff", options.first_backoff},
                   {"max_backoff", options.max_backoff},
                   {"patience", options.patience},
                   {"silent_after", options.silent_after},
                   {"slow_after", options.slow_after}};
  for (const auto& [name, value] : durations) {
    if (value <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError(
          absl::StrCat("failover: ", name, " is ", absl::FormatDuration(value),
                       ", wanted more than 0"));
    }
  }
  if (options.start_patience < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "failover: start_patience is ",
        absl::FormatDuration(options.start_patience), ", wanted 0 or more"));
  }
  if (!(options.jitter >= 0 && options.jitter <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "failover: jitter is ", options.jitter, ", wanted 0 to 1"));
  }
  return absl::OkStatus();
}

Fault GetFault(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
      return Fault::kPassing;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return Fault::kLasting;
    default:
      return Fault::kFinal;
  }
}

Failover::Failover(std::vector<std::string> servers,
                   const FailoverOptions& options)
    : options_(options), random_(options.seed) {
  for (std::string& name : servers) {
    servers_.emplace_back().name = std::move(name);
  }
}

void Failover::OnProgress() {
  failing_since_ = absl::InfiniteFuture();
  hangs_ = 0;
  servers_[current_].failures = 0;
  for (Server& server : servers_) server.last = absl::OkStatus();
}

absl::StatusOr<absl::Duration> Failover::OnFailure(absl::Time now,
                                                   const absl::Status& why) {
  if (GetFault(why) == Fault::kFinal) return why;
  if (absl::IsDeadlineExceeded(why)) ++hangs_;
  failing_since_ = std::min(failing_since_, now);
  Server& failed = servers_[current_];
  ++failed.failures;
  failed.last = why;
  failed.failed_at = now;
  failed.not_before = now + Backoff(failed.failures);
  if (AllAreOut(now)) return Exhausted(now, why);
  current_ = Soonest(now);
  return std::max(servers_[current_].not_before - now, absl::ZeroDuration());
}

absl::Duration Failover::silent_after() const {
  return options_.silent_after * (int64_t{1} << HangDoublings());
}

absl::Duration Failover::slow_after() const {
  return options_.slow_after * (int64_t{1} << HangDoublings());
}

int Failover::HangDoublings() const {
  return std::min(hangs_ / static_cast<int>(servers_.size()), kMaxDoublings);
}

absl::Duration Failover::Backoff(int failures) {
  absl::Duration backoff = options_.first_backoff;
  for (int i = 1; i < failures && backoff < options_.max_backoff; ++i) {
    backoff *= 2;
  }
  return std::min(backoff, options_.max_backoff) *
         (1 - options_.jitter * Random());
}

// SplitMix64: one word of state, and the same on every machine.
double Failover::Random() {
  random_ += 0x9e3779b97f4a7c15;
  uint64_t bits = random_;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  bits ^= bits >> 31;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

bool Failover::AllAreOut(absl::Time now) const {
  const bool patient = now - failing_since_ < options_.patience;
  for (const Server& server : servers_) {
    if (server.last.ok()) return false;
    if (patient && GetFault(server.last) != Fault::kLasting) return false;
  }
  return true;
}

absl::Status Failover::Exhausted(absl::Time now,
                                 const absl::Status& why) const {
  bool lasting = true;
  for (const Server& server : servers_) {
    lasting = lasting && GetFault(server.last) == Fault::kLasting;
  }
  std::string message =
      servers_.size() == 1
          ? std::string("the only server cannot go on")
          : absl::StrCat("none of the ", servers_.size(), " servers can go on");
  absl::StrAppend(&message, ", ", Duration(now - failing_since_),
                  " after the first failure");
  for (const Server& server : servers_) {
    absl::StrAppend(&message, "; ", server.name,
                    " (failures in a row: ", server.failures, ", last ",
                    Duration(now - server.failed_at),
                    " ago): ", server.last.message());
  }
  return absl::Status(lasting ? why.code() : absl::StatusCode::kUnavailable,
                      message);
}

size_t Failover::Soonest(absl::Time now) const {
  size_t best = current_;
  absl::Time best_time = absl::InfiniteFuture();
  for (size_t i = 1; i <= servers_.size(); ++i) {
    const size_t candidate = (current_ + i) % servers_.size();
    const absl::Time time = std::max(servers_[candidate].not_before, now);
    if (time < best_time) {
      best = candidate;
      best_time = time;
    }
  }
  return best;
}

}  // namespace ballast
