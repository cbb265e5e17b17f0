#ifndef BALLAST_CLIENT_HANG_TIMER_H_
#define BALLAST_CLIENT_HANG_TIMER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace ballast {

// Detects a server that hangs or is too slow. A server without credit does not
// count: a client that holds its whole allowance waits for itself. Pure;
// thread-compatible.
class HangTimer {
 public:
  // See FailoverOptions.
  HangTimer(absl::Duration silent_after, absl::Duration slow_after)
      : silent_after_(silent_after), slow_after_(slow_after) {}

  // State of the wait for a block.
  struct Wait {
    // Bytes of the block received so far.
    uint64_t bytes = 0;
    // Whether the server has credit for the block.
    bool may_send = false;
  };

  // Begins the wait for a block.
  void Start(absl::Time now);

  // Call regularly during the wait. OK, or DEADLINE_EXCEEDED saying what was
  // waited for and how long. Accurate to the time between two calls.
  absl::Status Check(absl::Time now, const Wait& wait);

 private:
  absl::Duration silent_after_;
  absl::Duration slow_after_;
  absl::Time may_send_since_;
  absl::Time last_byte_;
  uint64_t bytes_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_HANG_TIMER_H_
