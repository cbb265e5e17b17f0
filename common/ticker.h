#ifndef BALLAST_COMMON_TICKER_H_
#define BALLAST_COMMON_TICKER_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace ballast {

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

#endif  // BALLAST_COMMON_TICKER_H_
