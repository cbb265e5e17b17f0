#ifndef BALLAST_COMMON_CLOCK_H_
#define BALLAST_COMMON_CLOCK_H_

#include <memory>

#include "absl/time/time.h"

namespace ballast {

// One thread's sleep that another thread can end early. Thread-safe; it may
// outlive the Clock that made it.
class Sleeper {
 public:
  virtual ~Sleeper() = default;

  // Blocks until `duration` has passed (true), or until Wake is or was called
  // (false).
  virtual bool Sleep(absl::Duration duration) = 0;

  // Ends the current Sleep and every later one. From any thread.
  virtual void Wake() = 0;
};

// The seam to time: code that waits or measures time takes a Clock, so that
// tests need no sleeps (tests/fakes/manual_clock.h). Thread-safe.
class Clock {
 public:
  // The system's clock; never destroyed.
  static Clock* Real();
  virtual ~Clock() = default;

  // Never goes backwards. For differences only: the origin is arbitrary.
  virtual absl::Time Now() = 0;
  virtual std::unique_ptr<Sleeper> NewSleeper() = 0;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_CLOCK_H_
