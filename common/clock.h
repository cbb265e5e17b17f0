#ifndef BALLAST_COMMON_CLOCK_H_
#define BALLAST_COMMON_CLOCK_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// Calls a function every `period`, in its own thread, until destroyed;
// destruction waits for a call in progress. The first call comes one period
// after Start. `period` is evaluated before each wait.
class Ticker {
 public:
  using Period = std::function<absl::Duration()>;

  // `clock` is not owned and outlives this; `tick` must not destroy the Ticker.
  // Errors: RESOURCE_EXHAUSTED ("no thread to `purpose`").
  static absl::StatusOr<std::unique_ptr<Ticker>> Start(
      absl::string_view purpose, Period period, std::function<void()> tick,
      Clock* clock);
  ~Ticker();

 private:
  Ticker(Period period, std::function<void()> tick, Clock* clock);

  const Period period_;
  const std::function<void()> tick_;
  const std::unique_ptr<Sleeper> sleeper_;
  std::thread thread_;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_CLOCK_H_
