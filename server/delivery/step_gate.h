#ifndef BALLAST_SERVER_DELIVERY_STEP_GATE_H_
#define BALLAST_SERVER_DELIVERY_STEP_GATE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"

namespace ballast {

// Keeps apart the steps that ranks have reached and those that a change of the
// configuration may still alter (docs/decisions/0086-revisions.md). A step is
// reached once its schedule exists and is given to a rank, which may train on
// it. It cannot be held from Enter on, and a step that is held does not enter.
// Thread-safe.
class StepGate {
 public:
  // Steps that are kept as reached ahead of the first that is: one write of the
  // disk for each so many steps, and as many more that a restarted server
  // cannot change.
  static constexpr uint64_t kAhead = 32;

  // Writes down that every step below `below` may have been reached, where a
  // crash cannot undo it. Called with a lock held; blocks on the disk.
  using Keep = std::function<absl::Status(uint64_t below)>;

  // Steps below `reached_below` may have been reached already.
  StepGate(uint64_t reached_below, Keep keep)
      : reached_below_(reached_below),
        kept_below_(reached_below),
        keep_(std::move(keep)) {}

  // Before Begin every step passes and none counts: for a server's rehearsal.
  void Begin();

  // Before the schedule of `step` is made. Until Leave no change can begin at
  // this step or before. Errors: UNAVAILABLE (it is held: says why); as Close
  // says.
  absl::Status Enter(uint64_t step);

  // After an Enter that was OK. If the schedule was `made`, the step is
  // reached. Errors: UNAVAILABLE (it cannot be kept); as Close says. The
  // schedule must then be given to nobody, now or later: a change may begin at
  // the step.
  absl::Status Leave(uint64_t step, bool made);

  // As Enter, for somebody who looks at the step and does not train on it: it
  // does not count as reached.
  absl::Status Look(uint64_t step) const;

  // Holds the steps from `first` on, until the next Hold; nullopt holds none.
  // Returns false, and changes nothing, if one of them may have passed.
  bool Hold(std::optional<uint64_t> first, std::string why);
  // While `why` is not OK, nothing passes: Enter and Look return it.
  void Close(absl::Status why);
  // Counts every step below `below` as reached.
  void Raise(uint64_t below);

  // The first step that no rank has reached or is about to.
  uint64_t reached_below() const;

 private:
  absl::Status CheckHeld(uint64_t step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t ReachedBelow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t reached_below_ ABSL_GUARDED_BY(mutex_);
  std::multiset<uint64_t> entered_ ABSL_GUARDED_BY(mutex_);  // not left yet
  uint64_t kept_below_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> held_from_ ABSL_GUARDED_BY(mutex_);
  std::string why_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  const Keep keep_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_STEP_GATE_H_
