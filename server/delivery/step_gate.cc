#include "server/delivery/step_gate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

void StepGate::Begin() {
  MutexLock lock(&mutex_);
  begun_ = true;
}

absl::Status StepGate::CheckHeld(uint64_t step) const {
  if (!begun_) return absl::OkStatus();
  if (!closed_.ok()) return closed_;
  if (!held_from_.has_value() || step < *held_from_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("step ", step, " waits: ", why_));
}

absl::Status StepGate::Look(uint64_t step) const {
  MutexLock lock(&mutex_);
  return CheckHeld(step);
}

absl::Status StepGate::Enter(uint64_t step) {
  MutexLock lock(&mutex_);
  BALLAST_RETURN_IF_ERROR(CheckHeld(step));
  if (begun_ && step >= reached_below_) entered_.insert(step);
  return absl::OkStatus();
}

absl::Status StepGate::Leave(uint64_t step, bool made) {
  MutexLock lock(&mutex_);
  const auto entered = entered_.find(step);
  // Reached before, or nobody counts yet.
  if (entered == entered_.end()) return absl::OkStatus();
  entered_.erase(entered);
  if (!made || step < reached_below_) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(CheckHeld(step));
  if (step >= kept_below_) {
    // The next change can begin after the kept steps once this server has
    // restarted, so no more are kept than a held step leaves free.
    const uint64_t below = std::min(std::max(step, step + kAhead),
                                    held_from_.value_or(UINT64_MAX));
    const absl::Status kept = keep_(below);
    if (!kept.ok()) {
      return absl::UnavailableError(absl::StrCat(
          "step ", step,
          " waits until serve.revisions can be written: ", kept.message()));
    }
    kept_below_ = below;
  }
  reached_below_ = std::max(step, step + 1);
  return absl::OkStatus();
}

bool StepGate::Hold(std::optional<uint64_t> first, std::string why) {
  MutexLock lock(&mutex_);
  if (first.has_value()) {
    if (*first < ReachedBelow()) return false;
    // A step that is held now may pass later only after it has been kept.
    kept_below_ = std::min(kept_below_, *first);
  }
  held_from_ = first;
  why_ = std::move(why);
  return true;
}

void StepGate::Close(absl::Status why) {
  MutexLock lock(&mutex_);
  closed_ = std::move(why);
}

void StepGate::Raise(uint64_t below) {
  MutexLock lock(&mutex_);
  reached_below_ = std::max(reached_below_, below);
}

uint64_t StepGate::reached_below() const {
  MutexLock lock(&mutex_);
  return ReachedBelow();
}

uint64_t StepGate::ReachedBelow() const {
  if (entered_.empty()) return reached_below_;
  const uint64_t last = *entered_.rbegin();
  return std::max({reached_below_, last, last + 1});
}

}  // namespace ballast
