#ifndef BALLAST_SERVER_DELIVERY_STEP_GATE_H_
#define BALLAST_SERVER_DELIVERY_STEP_GATE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"

namespace ballast {

// Keeps apart the steps that ranks have reached and those that a change of the
// configuration may still alter (docs/decisions/0086-revisions.md). Every
// schedule of train that a rank may train on passes Enter first: a step that
// has passed can no longer be held, and a step that is held does not pass.
// Thread-safe.
class StepGate {
 public:
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
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

  // Passes `step`. Errors: UNAVAILABLE (it is held: says why; it cannot be
  // kept); as Close says.
  absl::Status Enter(uint64_t step);

  // As Enter, for somebody who looks at the step and does not train on it: it
  // does not count as reached.
  absl::Status Look(uint64_t step) const;

  // Holds the steps from `first` on, until the next Hold or Release. Returns
  // false, and changes nothing, if one of them may have passed.
  bool Hold(uint64_t first, std::string why);
  // While `why` is not OK, nothing passes: Enter and Look return it.
  void Close(absl::Status why);
  // Counts every step below `below` as reached.
  void Raise(uint64_t below);
  // Holds nothing any more.
  void Release() { Hold(kNone, ""); }

  // The first step that no rank has reached.
  uint64_t reached_below() const;

 private:
  absl::Status CheckHeld(uint64_t step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t reached_below_ ABSL_GUARDED_BY(mutex_);
  uint64_t kept_below_ ABSL_GUARDED_BY(mutex_);
  uint64_t held_from_ ABSL_GUARDED_BY(mutex_) = kNone;
  std::string why_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  const Keep keep_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_STEP_GATE_H_
