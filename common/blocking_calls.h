#ifndef BALLAST_COMMON_BLOCKING_CALLS_H_
#define BALLAST_COMMON_BLOCKING_CALLS_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace ballast {

// Runs calls that may never return (a read from a disk that hangs) in its own
// threads, so that the caller's wait has an end. A call cannot be ended from
// outside: it occupies its thread until it returns. At most `max_stuck` calls
// may be stuck. Threads are kept for later calls. Thread-safe.
class BlockingCalls {
 public:
  // `clock` times the waits; outlives this.
  BlockingCalls(size_t max_stuck, Clock* clock);
  // Waits for no call. A stuck call continues in a detached thread.
  ~BlockingCalls();
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  // Blocks until `call` has run. `call` must own what it uses: after an error
  // it may still be running. Errors: DEADLINE_EXCEEDED (it has not returned
  // within `timeout`), RESOURCE_EXHAUSTED (`max_stuck` calls are stuck, or
  // no thread can be started; `call` does not run).
  absl::Status Run(std::function<void()> call, absl::Duration timeout);

  // Number of calls that timed out and have not returned.
  size_t stuck() const;

 private:
  struct State;
  static void Work(const std::shared_ptr<State>& state);

  Clock* const clock_;
  const std::shared_ptr<State> state_;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_BLOCKING_CALLS_H_
